use guild_protocol::replay::{self, SessionStatus, Standing, code};

use super::{foreign, foreign_lines, good, receipt_for};

#[test]
fn an_interrupted_replay_is_repaired_wherever_it_breaks_off() {
    let (file, receipt) = good();
    let line_ends: Vec<_> = (0..file.len()).filter(|i| file[*i] == b'\n').map(|i| i + 1).collect();
    for cut in (0..file.len()).step_by(7).chain(line_ends.iter().copied()) {
        let torn = &file[..cut];
        let kept = line_ends.iter().copied().filter(|end| *end <= cut).max().unwrap_or(0);
        let repaired = replay::repair(torn, SessionStatus::Failed);
        if kept < line_ends[1] || kept == file.len() {
            assert!(repaired.is_err(), "cut at {cut}");
            continue;
        }
        let repaired = repaired.unwrap();
        assert_eq!(repaired.dropped_bytes, cut - kept);
        assert_eq!(&repaired.bytes[..kept], &file[..kept]);
        let report = replay::verify(&repaired.bytes, None).unwrap();
        assert_eq!(report.standing, Standing::Repaired, "cut at {cut}: {report}");
        assert!(report.checks.problems().all(|p| p.code == &code::REPAIRED));
        assert!(!replay::verify(&repaired.bytes, Some(&receipt)).unwrap().is_verified());
        // Even a receipt made for it does not turn it into evidence.
        let own = receipt_for(report.trajectory_hash.unwrap());
        assert_eq!(
            replay::verify(&repaired.bytes, Some(&own)).unwrap().standing,
            Standing::Repaired
        );
    }
}

#[test]
fn only_the_end_can_be_repaired() {
    let (file, _) = good();
    let whole = replay::repair(&file, SessionStatus::Failed).unwrap_err();
    assert_eq!(whole.code(), &code::NOT_REPAIRABLE);
    let mut lines: Vec<_> = file.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    lines.pop();
    assert!(replay::repair(&lines.concat(), SessionStatus::Success).is_err());
    // A block of zeros, as some file systems leave it behind, is a torn line too.
    let zeros = [lines.concat(), b"\0\0\0\0\n".to_vec()].concat();
    assert_eq!(replay::repair(&zeros, SessionStatus::Timeout).unwrap().dropped_bytes, 5);
    for damaged in [3, lines.len() - 1] {
        let mut lines = lines.clone();
        let place = lines[damaged].len() - 10;
        lines[damaged][place] ^= 1;
        let error = replay::repair(&lines.concat(), SessionStatus::Failed).unwrap_err();
        assert_eq!(error.code(), &code::NOT_REPAIRABLE);
        assert!(error.place().unwrap().starts_with(&format!("line {}", damaged + 1)), "{error}");
    }
    let foreign = foreign(&foreign_lines()[..5]);
    let repaired = replay::repair(&foreign, SessionStatus::Timeout).unwrap();
    assert_eq!(replay::verify(&repaired.bytes, None).unwrap().standing, Standing::Repaired);
}
