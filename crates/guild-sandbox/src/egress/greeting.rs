//! Greetings of TLS for tests.

/// An extension.
pub(super) fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap();
    [&kind.to_be_bytes(), &length.to_be_bytes(), body].concat()
}

/// A message with these extensions.
pub(super) fn greeting(extensions: &[Vec<u8>]) -> Vec<u8> {
    let extensions = extensions.concat();
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
    body.extend(extensions);
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[1], &length[1..], &body].concat()
}

/// A message that names a server.
pub(super) fn named(name: &str) -> Vec<u8> {
    let length = u16::try_from(name.len()).unwrap();
    let entry = [&[0], &length.to_be_bytes()[..], name.as_bytes()].concat();
    let list = [&(length + 3).to_be_bytes()[..], &entry].concat();
    greeting(&[extension(0, &list), extension(43, &[2, 3, 4])])
}

/// A message in records of at most this size.
pub(super) fn records(message: &[u8], size: usize) -> Vec<u8> {
    let record = |piece: &[u8]| {
        let length = u16::try_from(piece.len()).unwrap().to_be_bytes();
        [&[22, 3, 1], &length[..], piece].concat()
    };
    message.chunks(size).flat_map(record).collect()
}
