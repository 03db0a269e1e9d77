// Fetch and complete with npm `graphile-worker`, in one of two ways. Beside our queue: a local queue of 500 and
// completions in batches, both of which its options offer for throughput; 24 jobs at a time: the fastest of the settings
// that were tried. Beside turns: 64 jobs at a time and nothing else changed, so that each job is fetched and marked as
// done for itself, as a turn's own steps are.
import { Logger, makeWorkerUtils, run } from 'graphile-worker'
import { jobs } from './jobs.mjs'

const TASK = 'bench'
const PART = 500
const BATCHED = {
  concurrentJobs: 24,
  maxPoolSize: 10,
  localQueue: { size: 500 },
  completeJobBatchDelay: 10,
  failJobBatchDelay: 10
}
const EACH = { concurrentJobs: 64, maxPoolSize: 64 }
const WORKER = process.argv.includes('jobs_postgres') ? BATCHED : EACH
const logger = new Logger(() => (level, message) => { if (level === 'error') console.error(message) })

await jobs('graphile-worker', async (url, payloads, work) => {
  const utils = await makeWorkerUtils({ connectionString: url, logger })
  await utils.migrate()
  // In parts: within one transaction each added job costs more than the one before.
  for (let from = 0; from < payloads.length; from += PART) {
    await utils.withPgClient(client => client.query(
      'SELECT graphile_worker.add_job($1, payload::json) FROM unnest($2::text[]) AS payload',
      [TASK, payloads.slice(from, from + PART).map(payload => JSON.stringify(payload))]))
  }
  let started
  let left = payloads.length
  let finished
  const last = new Promise(resolve => { finished = resolve })
  const task = payload => {
    // Its start and its first fetch are not counted, which is in its favour.
    started ??= performance.now()
    work(payload)
    left -= 1
    if (left === 0) finished()
  }
  const preset = { worker: WORKER }
  const runner = await run({ connectionString: url, noHandleSignals: true, logger, preset, taskList: { [TASK]: task } })
  await last
  // Stopping it writes the last completions; those that are written one by one may come a moment later.
  await runner.stop()
  const ended = performance.now()
  await new Promise(resolve => setTimeout(resolve, 500))
  const { rows } = await utils.withPgClient(client => client.query(
    'SELECT count(*)::int AS open FROM graphile_worker.jobs'))
  await utils.release()
  return { started, ended, open: rows[0].open }
})
