//! The fuzzer's bytes as changes of a good file.

/// Applies changes of four bytes each: what to do, where (two bytes), and the byte to put there.
pub fn edited(good: &[u8], changes: &[u8]) -> Vec<u8> {
    let mut file = good.to_vec();
    for change in changes.chunks_exact(4) {
        let &[action, high, low, byte] = change else { continue };
        let place = usize::from(u16::from_be_bytes([high, low])) % file.len().max(1);
        match action % 4 {
            0 => file.insert(place, byte),
            1 if file.len() > 1 => drop(file.remove(place)),
            2 => file.truncate(place),
            _ => file[place] = byte,
        }
        if file.is_empty() {
            break;
        }
    }
    file
}
