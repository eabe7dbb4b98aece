// pg-boss (npm) as a peer.
//
// Tuned, by medians of alternating drains of 50,000 on two shared cores (messages per second; two
// runs; in force: fetch() and complete() by hand in 4 loops, 5,000 at a time):
//
//   in force                                                                   22,400; 21,900
//   by hand, 4 loops, 1,000 at a time                                          18,000; 21,000
//   by hand, 8 loops, 1,000 at a time                                          15,600; 22,800
//   by hand, 4 loops, 2,000; 1,000 at a time, a partition of its own           16,000; 23,900
//   by hand, 3 loops, 2,000 at a time                                               –; 19,000
//   work(), burstWhenBatchFull, 4 workers, batches of 2,000; 1,000             15,100; 16,800
//   work(), 4 workers, batches of 5,000                                             –; 23,900
//   work(), 8 workers, batches of 1,000                                        22,400; 21,100
//   an earlier run: by hand, 4 loops of 1,000; 2 of 1,000; 2 of 5,000  18,000; 11,900; 18,600
//   that run: work(), 1; 2; 4 workers, batches of 1,000                  5,900; 8,500; 11,100
//
// The best of them against each other, seven rounds on a quieter machine:
//
//   in force                                                                           29,000
//   the same in a partition of its own                                                 29,200
//   by hand, 4 loops, 1,000 at a time, a partition of its own                          24,500
//   work(), 4 workers, batches of 5,000                                                20,900
//
// Its supervision and scheduling are off: they are not
// needed here and would only take time. LISTEN/NOTIFY, which costs each send something, is on for
// the steady state and for latency, and off where nobody waits for a message. In the steady state
// 1, 2 and 4 workers did the same within the noise (323, 314, 303 messages per second); 2 had the
// lowest p99.

import "./runtime.mjs";
import { setTimeout as sleep } from "node:timers/promises";
import { PgBoss } from "pg-boss";
import { clock, serve, versionOf } from "./protocol.mjs";

const LOOPS = 4;
const BATCH = 5_000;
const IDLE_MILLISECONDS = 10;
const WORK = {
  steady: { localConcurrency: 2, batchSize: 1_000, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 },
  latency: { localConcurrency: 1, batchSize: 1, pollingIntervalSeconds: 0.5 },
};
const QUIET_QUEUE = "bench";
const NOTIFYING_QUEUE = "bench_notifying";

const isNotified = (workload) => workload in WORK;
const queueOf = (workload) => (isNotified(workload) ? NOTIFYING_QUEUE : QUIET_QUEUE);

serve(async (url) => {
  const deployed = await started(url, 1);
  await deployed.createQueue(QUIET_QUEUE);
  await deployed.createQueue(NOTIFYING_QUEUE, { notify: true });
  const query = (text) => deployed.getDb().executeSql(text);

  return {
    name: `pg-boss ${versionOf("pg-boss")}`,

    clean: () => query("truncate pgboss.job"),

    async unfinished() {
      const { rows } = await query("select count(*)::int as count from pgboss.job where state < 'completed'");
      return rows[0].count;
    },

    async producer(connections, workload) {
      const boss = await started(url, connections);
      const queue = queueOf(workload);
      return {
        enqueue: (payload) => boss.send(queue, payload),
        enqueueMany: (payloads) => boss.insert(queue, payloads.map((data) => ({ data }))),
        close: () => boss.stop({ graceful: false }),
      };
    },

    start: (workload, handler) => (workload === "drain" ? loops(url, handler) : workers(url, workload, handler)),

    close: () => deployed.stop({ graceful: false }),
  };
});

/** Fetches and completes by hand. A loop ends after its jobs are completed in the database. */
async function loops(url, handler) {
  const boss = await started(url, LOOPS);
  let stopping = false;
  const begun = clock();
  const running = Promise.all(
    Array.from({ length: LOOPS }, async () => {
      while (!stopping) {
        const jobs = await boss.fetch(QUIET_QUEUE, { batchSize: BATCH });
        for (const job of jobs) handler(job.data);
        if (jobs.length > 0) await boss.complete(QUIET_QUEUE, jobs.map((job) => job.id));
        else if (!stopping) await sleep(IDLE_MILLISECONDS);
      }
    }),
  );
  return {
    begun,
    async stop() {
      stopping = true;
      await running;
    },
    close: () => boss.stop({ graceful: false }),
  };
}

/** Workers that are notified. */
async function workers(url, workload, handler) {
  const options = WORK[workload];
  const queue = queueOf(workload);
  const boss = await started(url, options.localConcurrency + 1, { useListenNotify: true });
  const begun = clock();
  await boss.work(queue, options, async (jobs) => {
    for (const job of jobs) handler(job.data);
  });
  return {
    begun,
    stop: () => boss.offWork(queue, { wait: true }),
    close: () => boss.stop({ graceful: false }),
  };
}

/** An instance whose connections are open already: opening them is no part of what is measured. */
async function started(url, connections, options = {}) {
  const boss = new PgBoss({ connectionString: url, max: connections, supervise: false, schedule: false, ...options });
  boss.on("error", console.error);
  await boss.start();
  await Promise.all(Array.from({ length: connections }, () => boss.getDb().executeSql("select 1")));
  return boss;
}
