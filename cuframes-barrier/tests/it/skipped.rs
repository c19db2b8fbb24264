//! What a message has beside the fields that are known is read over, but not believed.

use cuframes_barrier::message::Status;
use cuframes_barrier::msgpack::{DecodeError, Problem};

#[test]
fn a_string_that_is_read_over_must_be_one_as_in_the_original() {
    assert_eq!(Status::decode(b"\x81\xa1x\x92\xa1y\xc4\x01\xff").unwrap(), Status::default());
    for (bytes, offset) in
        [(&b"\x81\xa1x\xa1\xff"[..], 3), (b"\x81\xa1x\x92\x01\xa1\xff", 5), (b"\x81\xa1x\x81\xa1\xff\x01", 4)]
    {
        let error = DecodeError { field: None, offset, problem: Problem::NotUtf8 };
        assert_eq!(Status::decode(bytes), Err(error), "{bytes:02x?}");
    }
}
