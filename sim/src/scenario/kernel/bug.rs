//! Bugs to be planted, and found. Some are planted where the product meets its database, by changing what a statement
//! says or does; some are done by a rogue beside the worker; one by a tool that lies.

use crate::database::Plant;

/// A bug to be planted, and found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Bug {
    /// A turn that waits for a worker is asked for again, instead of a bell being rung.
    AskedAgain,
    /// Whoever has lost its turn writes a card all the same.
    UnfencedAppend,
    /// Whoever has lost its turn puts a card that is there into the box of the turn.
    UnfencedEntry,
    /// A result is applied by one transaction, and its turn resumed by another.
    TwoTransactions,
    /// A tool is run before its call is written down.
    PublishBeforeCommit,
    /// A command leaves for its tool before its commit.
    CommandBeforeCommit,
    /// A heartbeat takes a lease back that somebody else has got meanwhile.
    HeartbeatRevives,
    /// A sweep takes turns away from workers that have them.
    SweepEvicts,
    /// A call that has its result times out all the same.
    TimeoutBesideResult,
    /// Calls of a turn that is over stay open.
    LeakedWait,
    /// A turn that is resumed runs under the epoch that it had.
    EpochStays,
    /// The newest turn of an agent begins first.
    OutOfOrder,
    /// A batch that is over is joined again when its time is.
    JoinedAgain,
    /// What a child delivers is applied though its parent was stopped.
    AnsweredAfterStop,
    /// A second worker is let in to a target that one may serve.
    SecondWorker,
    /// Turns that were written while a clock was ahead wait for the time that it had shown.
    AheadForEver,
}

impl Bug {
    /// What statements say otherwise.
    pub(super) fn plant(self) -> Plant {
        let edits: &[(&str, &str)] = match self {
            Bug::AskedAgain => {
                &[("CREATE UNIQUE INDEX agent_inbox_turn", "CREATE INDEX agent_inbox_turn")]
            }
            Bug::SweepEvicts => &[
                ("t.lease_until_ms", "t.lease_until_ms - 100000"),
                ("AND lease_until_ms <= $1", "AND lease_until_ms <= $1 + 100000"),
            ],
            Bug::TimeoutBesideResult => {
                &[("CREATE UNIQUE INDEX cards_tool_result", "CREATE INDEX cards_tool_result")]
            }
            Bug::JoinedAgain => &[
                ("t.fail_fast, t.status, t.deadline_ms", "t.fail_fast, 'running', t.deadline_ms"),
                ("WHERE batch_id = $1 AND t.status = 'running'", "WHERE batch_id = $1"),
                (
                    "UNIQUE (project_id, correlation_id, primitive, edge_phase)",
                    "CHECK (edge_id <> '')",
                ),
            ],
            Bug::SecondWorker => &[
                ("lease.until_ms <= $5", "lease.until_ms <= $5 + 100000"),
                (
                    "name = $1 AND token = $2 AND epoch = $3 AND until_ms > $4",
                    "name = $1 AND $2 <> '' AND $3 > 0 AND $4 > 0",
                ),
            ],
            Bug::AheadForEver => &[(
                "SET due_ms = $1 WHERE status = 'dispatched' AND due_ms > $2",
                "SET due_ms = $1 WHERE status = 'dispatched' AND due_ms > $2 + 1000000000000",
            )],
            Bug::OutOfOrder => &[("ORDER BY t.seq LIMIT 4", "ORDER BY t.seq DESC LIMIT 1")],
            _ => &[],
        };
        let early = self == Bug::CommandBeforeCommit;
        let overheard_sink = early.then_some(guild_kernel::turn::COMMAND_SINK);
        Plant { edits, overheard_sink, ..Plant::default() }
    }

    /// What the database does otherwise: a change that code forgets to make, or makes wrongly.
    pub(super) fn trigger(self) -> Option<&'static str> {
        match self {
            // The rogue's own change shows no other time.
            Bug::TwoTransactions => Some(
                "CREATE TRIGGER sim_does_not_resume BEFORE UPDATE OF status ON agent_state_head
                 WHEN OLD.status = 'suspended' AND NEW.status = 'dispatched' AND NEW.updated_ms <> OLD.updated_ms
                   AND OLD.active_agent_turn_id = NEW.active_agent_turn_id
                 BEGIN SELECT RAISE(IGNORE); END;",
            ),
            Bug::LeakedWait => Some(
                "CREATE TRIGGER sim_does_not_drop BEFORE UPDATE OF wait_status ON turn_waiting_tools
                 WHEN NEW.wait_status = 'dropped' BEGIN SELECT RAISE(IGNORE); END;",
            ),
            Bug::EpochStays => Some(
                "CREATE TRIGGER sim_does_not_count AFTER UPDATE OF status ON agent_state_head
                 WHEN OLD.status = 'dispatched' AND NEW.status = 'running' AND NEW.steps_taken > 0
                 BEGIN
                   UPDATE agent_state_head SET turn_epoch = OLD.turn_epoch
                   WHERE project_id = NEW.project_id AND agent_id = NEW.agent_id;
                 END;",
            ),
            _ => None,
        }
    }
}
