// Fetch and complete with npm `graphile-worker`: a local queue of 500 and completions in batches, both of which its
// options offer for throughput; 24 jobs at a time: the fastest of the settings that were tried.
import { Logger, makeWorkerUtils, run } from 'graphile-worker'
import { jobs } from './jobs.mjs'

const TASK = 'bench'
const WORKER = {
  concurrentJobs: 24,
  maxPoolSize: 10,
  localQueue: { size: 500 },
  completeJobBatchDelay: 10,
  failJobBatchDelay: 10
}
const logger = new Logger(() => (level, message) => { if (level === 'error') console.error(message) })

await jobs('graphile-worker', async (url, payloads, work) => {
  const utils = await makeWorkerUtils({ connectionString: url, logger })
  await utils.migrate()
  await utils.withPgClient(client => client.query(
    'SELECT graphile_worker.add_job($1, payload::json) FROM unnest($2::text[]) AS payload',
    [TASK, payloads.map(payload => JSON.stringify(payload))]))
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
  // Stopping it writes the last completions.
  await runner.stop()
  const ended = performance.now()
  const { rows } = await utils.withPgClient(client => client.query(
    'SELECT count(*)::int AS open FROM graphile_worker.jobs'))
  await utils.release()
  return { started, ended, open: rows[0].open }
})
