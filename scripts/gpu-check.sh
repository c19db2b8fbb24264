#!/usr/bin/env bash
# Checks frames in GPU memory on a machine that has a GPU, and measures them. Writes a report as JSON.
#
#   scripts/gpu-check.sh [--report FILE]              builds (release), checks and measures
#   scripts/gpu-check.sh --prebuild DIR               only builds, and puts everything that is needed into DIR
#   scripts/gpu-check.sh --prebuilt DIR [--report F]  checks and measures with what is in DIR: needs no Rust and no network
#
# Five minutes at most on a data-centre GPU. nvidia-smi is used if it is there; bash, coreutils and a driver are needed.
# The exit code is 0 only if every check passed.
set -euo pipefail
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
report=gpu-report.json
prebuild='' prebuilt=''

while [ $# -gt 0 ]; do
  case "$1" in
    --report | --prebuild | --prebuilt)
      [ $# -ge 2 ] || { echo "gpu-check: $1 needs a value" >&2; exit 2; }
      case "$1" in
        --report) report=$2 ;;
        --prebuild) prebuild=$2 ;;
        --prebuilt) prebuilt=$2 ;;
      esac
      shift 2
      ;;
    *)
      sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
      exit 2
      ;;
  esac
done

# executable_of PACKAGE TEST: builds a test and prints where it is.
executable_of() {
  cargo test --release --manifest-path "$repository/Cargo.toml" -p "$1" --test "$2" --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | grep "/deps/$2-" | tail -1
}

# build DIR: the program, the suite for backends, and publisher and subscribers in processes of their own.
build() {
  mkdir -p "$1"
  cargo build --release --manifest-path "$repository/Cargo.toml" -p cuframes-cli
  local target
  target=$(cargo metadata --manifest-path "$repository/Cargo.toml" --no-deps --format-version 1 |
    sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
  cp "$target/release/cuframes" "$1/cuframes"
  cp "$(executable_of cuframes-cuda it)" "$1/backends"
  cp "$(executable_of cuframes-cli gpu)" "$1/streams"
}

# A report and programs are where the caller stands, who does not go along into the directory of the checks.
[ -z "$prebuilt" ] || prebuilt=$(realpath "$prebuilt")
if [ -n "$prebuild" ]; then
  build "$prebuild"
  echo "gpu-check: ready in $prebuild"
  exit
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$prebuilt" ]; then
  build "$work/bin"
  prebuilt=$work/bin
fi

steps=() failures=0
have_smi=false
command -v nvidia-smi >/dev/null && nvidia-smi >/dev/null 2>&1 && have_smi=true
# smi FIELD: what nvidia-smi says about the device that CUDA counts first, which has not always the number 0 there.
smi() { nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits -i "$uuid" 2>/dev/null | head -1; }
# memory_used: in MiB, or null where it is not told (MIG, some integrated GPUs).
memory_used() {
  local used
  used=$(smi memory.used) || used=''
  [[ $used =~ ^[0-9]+$ ]] && echo "$used" || echo null
}
# Text as the inside of a JSON string.
quoted() { printf '%s' "$1" | tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g'; }
now() { date +%s.%N; }
since() { echo "$1 $(now)" | awk '{ printf "%.3f", $2 - $1 }'; }

# check NAME SECONDS COMMAND...: one check, with a limit. It runs tests, and passes only if there are some: libtest takes a name
# that no test has for success.
check() {
  local name=$1 limit=$2 start ok=true detail
  shift 2
  start=$(now)
  if ! timeout --kill-after 5 "$limit" "$@" >"$work/out" 2>&1 || ! grep -q '^test result: ok\. [1-9]' "$work/out"; then
    ok=false
    failures=$((failures + 1))
  fi
  detail=$(grep -E '^test result|panicked at|^cuframes:|error' "$work/out" | tail -3 | tr '\n' ' ' || true)
  steps+=("{\"name\":\"$(quoted "$name")\",\"ok\":$ok,\"seconds\":$(since "$start"),\"detail\":\"$(quoted "$detail")\"}")
  printf '%-52s %s\n' "$name" "$([ $ok = true ] && echo ok || echo FAILED)"
  if [ $ok = false ]; then
    sed 's/^/    /' "$work/out" | tail -40
  fi
}

# measure BACKEND SIZE SUBSCRIBERS: a demo, whose own JSON goes into the report.
measure() {
  local name="$1, $2 nv12, $3 subscribers" start ok=true result=null
  start=$(now)
  if timeout --kill-after 5 60 "$prebuilt/cuframes" demo --json --backend "$1" --size "$2" --subscribers "$3" \
    --frames $(($3 < 16 ? 300 : 150)) --policy strict-wait >"$work/demo" 2>"$work/err"; then
    result=$(cat "$work/demo")
  else
    ok=false
    failures=$((failures + 1))
    sed 's/^/    /' "$work/err" | tail -5
  fi
  steps+=("{\"name\":\"$(quoted "$name")\",\"ok\":$ok,\"seconds\":$(since "$start"),\"demo\":$result}")
  printf '%-52s %s\n' "$name" "$([ $ok = true ] && echo ok || echo FAILED)"
}

# The tests find the machine's driver, and not the double.
export CUFRAMES_REAL_GPU=1
gpu=unknown driver=unknown used_before=null used_after=null

cd "$work"
# The program says on which device it publishes, and how the memory of that is shared.
mkdir run
said=$(CUFRAMES_RUN_DIR=$work/run timeout 60 "$prebuilt/cuframes" publish "gpu-check-$$" --pattern bars --size 64x32 \
  --backend auto --frames 1 2>&1 || true)
uuid=$(grep -oE '(GPU|MIG)-[0-9a-f-]{36}' <<<"$said" | head -1 || true)
echo "gpu-check: ${said:-no word from cuframes}"
if $have_smi && [ -n "$uuid" ]; then
  gpu=$(smi name) || gpu=unknown
  driver=$(smi driver_version) || driver=unknown
  used_before=$(memory_used)
fi
check "the suite for backends, over IPC handles" 120 "$prebuilt/backends" --test-threads 1 conformance::over_ipc_handles::
check "the suite for backends, over file descriptors" 120 "$prebuilt/backends" --test-threads 1 conformance::over_vmm_descriptors::
for test in every_subscriber_sees_every_frame_of_a_strict_publisher \
  no_frame_is_seen_before_it_is_complete_or_after_it_was_overwritten \
  frames_of_the_caller_s_own_are_shared_where_they_are \
  a_killed_subscriber_does_not_stop_the_others \
  a_killed_publisher_ends_its_subscribers_with_an_error_and_they_leave_nothing_open \
  a_publisher_that_is_killed_while_frames_are_read_ends_its_subscribers_with_an_error \
  a_publisher_that_is_killed_with_a_frame_under_way_ends_its_subscribers_with_an_error \
  a_complete_frame_does_not_wait_for_the_next_one; do
  check "${test//_/ }" 60 "$prebuilt/streams" --exact "share::$test"
done
for backend in cuda cuda-vmm; do
  for size in 1920x1080 3840x2160; do
    for subscribers in 1 4 16; do
      measure "$backend" "$size" "$subscribers"
    done
  done
done
if [ "$used_before" = null ]; then
  echo 'SKIPPED: GPU memory before and after: nvidia-smi does not tell'
else
  # What the killed ones had comes back when the driver has noticed.
  for _ in $(seq 50); do
    used_after=$(memory_used)
    [ "$used_after" != null ] && [ "$used_after" -le "$((used_before + 16))" ] && break
    sleep 0.1
  done
  if [ "$used_after" = null ] || [ "$used_after" -gt "$((used_before + 16))" ]; then
    echo "GPU memory in use before: $used_before MiB, after: $used_after MiB"
    failures=$((failures + 1))
  fi
fi
cd "$OLDPWD"
joined=$(printf ',%s' "${steps[@]}")
cat >"$report" <<JSON
{"gpu":"$(quoted "$gpu")","uuid":"$(quoted "$uuid")","driver":"$(quoted "$driver")","kernel":"$(quoted "$(uname -r)")",
"memory_used_mib":{"before":$used_before,"after":$used_after},"failures":$failures,"steps":[${joined:1}]}
JSON
echo "gpu-check: $failures failures, report in $report"
[ "$failures" -eq 0 ]
