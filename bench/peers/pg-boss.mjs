// Fetch and complete with npm `pg-boss`: batches of 50, eight callers on its ten connections, without the maintenance
// that it would do beside.
import { PgBoss } from 'pg-boss'
import { BATCH, jobs } from './jobs.mjs'

const QUEUE = 'bench'
const CALLERS = 8

await jobs('pg-boss', async (url, payloads, work) => {
  const boss = new PgBoss({ connectionString: url, max: 10, supervise: false, schedule: false })
  boss.on('error', error => { throw error })
  await boss.start()
  await boss.createQueue(QUEUE)
  for (let i = 0; i < payloads.length; i += 1000) {
    await boss.insert(QUEUE, payloads.slice(i, i + 1000).map(data => ({ data })))
  }
  const caller = async () => {
    for (;;) {
      const batch = await boss.fetch(QUEUE, { batchSize: BATCH })
      if (batch.length === 0) return
      for (const job of batch) work(job.data)
      await boss.complete(QUEUE, batch.map(job => job.id))
    }
  }
  const started = performance.now()
  await Promise.all(Array.from({ length: CALLERS }, caller))
  const ended = performance.now()
  const { rows } = await boss.getDb().executeSql(
    "SELECT count(*)::int AS open FROM pgboss.job WHERE name = $1 AND state <> 'completed'", [QUEUE])
  await boss.stop({ graceful: false })
  return { started, ended, open: rows[0].open }
})
