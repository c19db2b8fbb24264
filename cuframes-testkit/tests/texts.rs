//! What people read: errors and values as text. Errors are one line that says what is wrong, and what to do where that is
//! ours to say.

use cuframes_core::error::{ErrorCode, Problem, Refused, Violation};
use cuframes_core::ring::{FrameLost, Seq};
use cuframes_core::session::Closed;
use cuframes_core::wire::hello::ConsumerName;
use cuframes_core::wire::{MessageType, ShutdownReason};
use cuframes_core::{Format, FrameMeta, Gone, Key, Misuse};

#[test]
fn a_wrong_key_or_name_says_what_would_be_right() {
    let key = |text: &str| text.parse::<Key>().unwrap_err().to_string();
    let rule = "; use 1 to 63 of a-z, A-Z, 0-9, '_' and '-'";
    assert_eq!(key(""), format!("a stream key is empty{rule}"));
    assert_eq!(key(&"k".repeat(64)), format!("a stream key has 64 bytes{rule}"));
    assert_eq!(key("cam/0"), format!("a stream key contains '/'{rule}"));

    let name = |text: &str| text.parse::<ConsumerName>().unwrap_err().to_string();
    let rule = "; use 1 to 255 bytes of printable text";
    assert_eq!(name(""), format!("a subscriber's name is empty{rule}"));
    assert_eq!(name(&"n".repeat(256)), format!("a subscriber's name has 256 bytes{rule}"));
    assert_eq!(name("a\nb"), format!("a subscriber's name contains a control character{rule}"));
}

#[test]
fn values_print_as_what_they_are_and_align_in_tables() {
    let key: Key = "cam0".parse().unwrap();
    assert_eq!(format!("[{key:6}] {key:?}"), "[cam0  ] Key(cam0)");
    let name: ConsumerName = "detector".parse().unwrap();
    assert_eq!(format!("[{name:>10}] {name:?}"), r#"[  detector] "detector""#);
    assert_eq!(ConsumerName::default().to_string(), "cuframes");
    let seq = Seq::new(42).unwrap();
    assert_eq!(format!("[{seq:4}] {seq:?}"), "[  42] Seq(42)");
}

#[test]
fn the_end_of_a_connection_says_who_did_what() {
    let violation =
        Violation::new(MessageType::PING, "payload_length", Problem::TooLong { len: 5000, max: 4096 });
    let refused = |message: &str| Refused { code: ErrorCode::FORMAT, message: message.into() };
    for (closed, text) in [
        (Closed::Violation(violation), format!("the peer broke the protocol: {violation}")),
        (Closed::Refused(refused("")), "refused with FORMAT".into()),
        // What could steer a terminal is not shown.
        (Closed::Refused(refused("\u{1b}[2J\nno")), "refused with FORMAT: \u{FFFD}[2J\u{FFFD}no".into()),
        (Closed::Rejected(ErrorCode::EVICTED), "rejected with EVICTED".into()),
        (Closed::Gone(Gone::Shutdown(ShutdownReason::UPGRADE)), "the publisher shut down (upgrade)".into()),
        (Closed::Gone(Gone::Unsubscribed), "unsubscribed".into()),
        (Closed::Gone(Gone::Disconnected), "the connection ended".into()),
        (Closed::Gone(Gone::Timeout { state: "Hello" }), "no answer in state Hello".into()),
        (Closed::Gone(Gone::NotReading), "the peer does not read".into()),
    ] {
        assert_eq!(closed.to_string(), text);
    }
}

#[test]
fn what_a_caller_does_wrong_names_the_call_or_the_argument() {
    let misuse = Misuse::WrongState { command: "attached", state: "Hello" };
    assert_eq!(misuse.to_string(), "attached is not possible in state Hello");
    let misuse = Misuse::Argument { name: "count", must: "at least 1" };
    assert_eq!(misuse.to_string(), "count must be at least 1");
    assert!(FrameLost::Overwritten.to_string().ends_with("read faster or use LEASE"));
    assert!(FrameLost::Evicted.to_string().ends_with("the publisher evicted us or is gone"));
}

#[test]
fn a_geometry_that_does_not_hold_together_says_which_field_and_what_it_must_be() {
    let good = FrameMeta::new(Format::NV12, 640, 480).unwrap();
    let text = |meta: FrameMeta| meta.validate().unwrap_err().to_string();
    assert_eq!(text(FrameMeta { format: Format(99), ..good }), "format 99 is unknown");
    assert_eq!(text(FrameMeta { width: 0, ..good }), "width is 0; it must be at least 1");
    assert_eq!(
        text(FrameMeta { pitch_y: 512, ..good }),
        "pitch_y is 512; it must be at least the 640 bytes of a row"
    );
    // The padding of the very last row is not needed.
    let needed = good.frame_size_bytes - u64::from(good.pitch_uv - 640);
    assert_eq!(
        text(FrameMeta { frame_size_bytes: 1, ..good }),
        format!("frame_size_bytes is 1; the planes need {needed}")
    );
    assert_eq!(FrameMeta { frame_size_bytes: needed, ..good }.validate(), Ok(()));
    let bytes = FrameMeta::new(Format::BYTES, 640, 1).unwrap();
    assert_eq!(text(FrameMeta { height: 2, ..bytes }), "height is 2; it must be 1 for format bytes");
    let error = FrameMeta::new(Format::RGB_F32_PLANAR, u32::MAX, u32::MAX).unwrap_err().to_string();
    assert!(error.ends_with("is too large; use a smaller frame"), "{error}");
}
