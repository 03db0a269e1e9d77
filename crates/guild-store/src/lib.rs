//! Durable state: transactions, migrations, events, outbox, leases.
