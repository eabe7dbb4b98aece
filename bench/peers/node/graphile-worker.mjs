// graphile-worker (npm) as a peer.
//
// Tuned, by medians of alternating drains of 50,000 on two shared cores (messages per second; in
// force: 12 concurrent jobs, a local queue of 5,000, completions batched for 0 ms, 10 connections):
//
//   in force                                                                                     31,900
//   as its page on performance: 24 jobs, local queue of 500, 25 connections                      13,100
//   24 jobs, local queue of 2,000; 5,000; 10,000                                 22,700; 25,100; 27,300
//   24 jobs, local queue of 5,000, 25 connections                                                27,600
//   24; 12 jobs, local queue of 5,000, batched for 20 ms                                 28,200; 28,900
//   24 jobs, local queue of 2,000, batched for 20 ms; 100 ms (another run)               35,300; 37,700
//   24 jobs, local queue of 5,000, batched for 20 ms (that run)                                  41,200
//   12 jobs, local queue of 2,000, batched for 20 ms (that run)                                  40,000
//   100 jobs, local queue of 2,000 (another run; 24 jobs there: 17,200)                          13,200
//
// The best of them against each other, seven rounds on a quieter machine:
//
//   in force                                                                                     40,000
//   12 jobs, local queue of 5,000; 10,000, batched for 20 ms                             38,200; 37,600
//   24 jobs, local queue of 10,000                                                               39,000
//
// In the steady state the documented setting did better than the one for drains (441 to 372 messages
// per second). Idle latency is measured as its own latency test does, with one concurrent job; a
// local queue of 10 made it 6.8 ms instead of 9.1 ms. Prepared statements are on, as by default.
//
// The end of a drain is the end of a graceful stop: completions are written in the background.

import "./runtime.mjs";
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";
import { clock, serve, versionOf } from "./protocol.mjs";

const SETTINGS = {
  drain: { concurrentJobs: 12, maxPoolSize: 10, localQueue: { size: 5_000 }, completeJobBatchDelay: 0 },
  steady: { concurrentJobs: 24, maxPoolSize: 10, localQueue: { size: 500 }, completeJobBatchDelay: 0 },
  latency: { concurrentJobs: 1, maxPoolSize: 10, localQueue: { size: 10 } },
};
const TASK = "bench";
// Its log would go to standard output, where the answers go.
const SILENT = new Logger(() => () => {});

serve(async (url) => {
  const pool = await connected(url, 1);
  const deploying = await makeWorkerUtils({ pgPool: pool, preset: { worker: { logger: SILENT } } });
  await deploying.migrate();
  await deploying.release();

  return {
    name: `graphile-worker ${versionOf("graphile-worker")}`,

    clean: () => pool.query("truncate graphile_worker._private_jobs"),

    async unfinished() {
      // A completed job is deleted.
      const { rows } = await pool.query("select count(*)::int as count from graphile_worker._private_jobs");
      return rows[0].count;
    },

    async producer(connections) {
      const pgPool = await connected(url, connections);
      const utils = await makeWorkerUtils({ pgPool, preset: { worker: { logger: SILENT } } });
      return {
        enqueue: (payload) => utils.addJob(TASK, payload),
        enqueueMany: (payloads) => utils.addJobs(payloads.map((payload) => ({ identifier: TASK, payload }))),
        async close() {
          await utils.release();
          await pgPool.end();
        },
      };
    },

    async start(workload, handler) {
      const worker = { ...SETTINGS[workload], logger: SILENT };
      const pgPool = await connected(url, worker.maxPoolSize);
      const begun = clock();
      const runner = await run({
        pgPool,
        preset: { worker },
        taskList: { [TASK]: handler },
        crontab: "",
        noHandleSignals: true,
      });
      return { begun, stop: () => runner.stop(), close: () => pgPool.end() };
    },

    close: () => pool.end(),
  };
});

/** A pool whose connections are open already: opening them is no part of what is measured. */
async function connected(url, connections) {
  const pool = new pg.Pool({ connectionString: url, max: connections, idleTimeoutMillis: 0 });
  pool.on("error", console.error);
  pool.on("connect", (client) => client.on("error", console.error));
  const clients = await Promise.all(Array.from({ length: connections }, () => pool.connect()));
  for (const client of clients) client.release();
  return pool;
}
