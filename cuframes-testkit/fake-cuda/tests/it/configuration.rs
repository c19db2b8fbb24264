//! What the variables mean.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use fake_cuda::{Code, Config, EntryPoint, Fault, FaultRule};

fn config(variables: &[(&str, &str)]) -> Result<Config, String> {
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    Config::from_variables(|name| variables.get(name).map(ToString::to_string))
}

#[test]
fn without_variables_there_is_one_device() {
    assert_eq!(config(&[]), Ok(Config::default()));
    assert_eq!(Config::default().devices, 1);
}

#[test]
fn every_variable_says_what_the_readme_says() {
    let rule = |entry_point, occurrence, fault| FaultRule { entry_point, occurrence, fault };
    let all = [
        ("FAKE_CUDA_DIR", "/a"),
        ("FAKE_CUDA_DEVICES", "3"),
        ("FAKE_CUDA_VISIBLE", "2, 0"),
        ("FAKE_CUDA_UUID_SEED", "7"),
        ("FAKE_CUDA_NAME", "Big"),
        ("FAKE_CUDA_MEMORY", "4096"),
        ("FAKE_CUDA_DRIVER_VERSION", "11040"),
        ("FAKE_CUDA_ATTRIBUTES", "125=0,75=7"),
        ("FAKE_CUDA_IPC", "refused"),
        ("FAKE_CUDA_IPC_REOPEN", "fail"),
        ("FAKE_CUDA_STREAM_DELAY_MS", "20"),
        ("FAKE_CUDA_HANG_STREAM", "1"),
        ("FAKE_CUDA_HOST_FUNCTIONS", "serial"),
        ("FAKE_CUDA_CLOSE_LIMIT_MS", "500"),
        ("FAKE_CUDA_READ_ONLY", "refused"),
        ("FAKE_CUDA_FAIL", "cuMemAlloc_v2@1=2,cuStreamWaitEvent@*=700,cuEventRecord@3=hang"),
        ("FAKE_CUDA_REPORT", "/b"),
    ];
    let expected = Config {
        dir: Some(PathBuf::from("/a")),
        devices: 3,
        visible: Some(vec![2, 0]),
        uuid_seed: 7,
        name: Some("Big".to_owned()),
        memory: 4096,
        driver_version: 11_040,
        attributes: [(125, 0), (75, 7)].into(),
        ipc_refused: true,
        ipc_reopen_fails: true,
        stream_delay: Duration::from_millis(20),
        streams_hang: true,
        serial_host_functions: true,
        close_limit: Duration::from_millis(500),
        read_only_refused: true,
        faults: vec![
            rule(EntryPoint::cuMemAlloc_v2, Some(1), Fault::Code(Code::OUT_OF_MEMORY)),
            rule(EntryPoint::cuStreamWaitEvent, None, Fault::Code(Code::ILLEGAL_ADDRESS)),
            rule(EntryPoint::cuEventRecord, Some(3), Fault::Hang),
        ],
        report: Some(PathBuf::from("/b")),
    };
    assert_eq!(config(&all), Ok(expected));
}

#[test]
fn what_cannot_be_understood_is_named() {
    let wrong = [
        ("FAKE_CUDA_DEVICES", "two"),
        ("FAKE_CUDA_VISIBLE", "1"),
        ("FAKE_CUDA_VISIBLE", "0,0"),
        ("FAKE_CUDA_MEMORY", "-1"),
        ("FAKE_CUDA_ATTRIBUTES", "125"),
        ("FAKE_CUDA_IPC", "maybe"),
        ("FAKE_CUDA_HOST_FUNCTIONS", "parallel"),
        ("FAKE_CUDA_FAIL", "cuMemAlloc@1=2"),
        ("FAKE_CUDA_FAIL", "cuMemAlloc_v2@0=2"),
        ("FAKE_CUDA_FAIL", "cuMemAlloc_v2=2"),
        ("FAKE_CUDA_FAIL", "cuMemAlloc_v2@1=no"),
    ];
    for (name, value) in wrong {
        let error = config(&[(name, value)]).unwrap_err();
        assert!(error.starts_with(name), "{name}={value}: {error}");
    }
}
