// What every npm peer of the benchmark says and does, whatever queue is behind it.
//
// A peer reads one request per line from standard input and writes one answer per line to
// standard output, both JSON; standard error is for its own words. The workloads are written
// here once, so that two peers differ only in the calls that they make to their queue.
//
// A peer is an object:
//   name                          name and version, as shown in the results
//   clean()                       removes all jobs
//   unfinished()                  how many jobs the database holds that are not completed
//   producer(connections, workload)
//                                 opens connections for a workload;
//                                 { enqueue(payload), enqueueMany(payloads), close() }
//   start(workload, handler)      starts the worker that is best for a workload ("drain", "latency",
//                                 "steady"), which calls handler(payload) for each message;
//                                 { begun, stop(), close() }: `begun` is clock() at the moment it was
//                                 told to start, stop() returns when what was handled is completed in
//                                 the database, close() ends its connections
//   close()                       ends all connections

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const PAYLOAD_BYTES = 200;
const BATCH = 1_000;
const UNCOUNTED = 5;
const PAUSE_MILLISECONDS = 40;
const MOST_DELAYS = 20_000;
// How long a worker may be silent before the workload is given up.
const PATIENCE_MILLISECONDS = 60_000;

/** Seconds of a clock that never goes back. */
export const clock = () => performance.now() / 1e3;

/** The installed version of a package. */
export function versionOf(name) {
  const manifest = new URL(`node_modules/${name}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(manifest, "utf8")).version;
}

/** Deploys a peer in the database named by the only argument, then serves requests until the end of input. */
export async function serve(deploy) {
  const url = process.argv[2];
  if (!url) throw new Error("expected the URL of an empty PostgreSQL database as the only argument");
  const peer = await deploy(url);
  say({ ready: peer.name });
  for await (const line of createInterface({ input: process.stdin })) {
    try {
      const request = JSON.parse(line);
      const workload = workloads[request.do];
      if (!workload) throw new Error(`unknown request ${request.do}`);
      say(await workload(peer, request));
    } catch (error) {
      console.error(error);
      say({ error: error.message });
    }
  }
  await peer.close();
  process.exit(0);
}

function say(answer) {
  process.stdout.write(JSON.stringify(answer) + "\n");
}

const workloads = {
  async clean(peer) {
    await peer.clean();
    return { messages: 0, seconds: 0 };
  },

  async enqueue(peer, { tasks, each }) {
    const producer = await peer.producer(tasks, "enqueue");
    const begun = clock();
    await concurrently(tasks, async () => {
      for (let message = 0; message < each; message++) await producer.enqueue(payload());
    });
    const seconds = clock() - begun;
    await producer.close();
    return { messages: tasks * each, seconds };
  },

  async fill(peer, { messages }) {
    const producer = await peer.producer(1, "fill");
    const begun = clock();
    for (let left = messages; left > 0; left -= BATCH) {
      await producer.enqueueMany(Array.from({ length: Math.min(left, BATCH) }, payload));
    }
    const seconds = clock() - begun;
    await producer.close();
    return { messages, seconds };
  },

  async drain(peer, { messages }) {
    const handled = new Handled();
    const worker = await peer.start("drain", () => handled.message());
    await handled.reach(messages);
    await worker.stop();
    const seconds = clock() - worker.begun;
    await worker.close();
    const unfinished = await peer.unfinished();
    if (unfinished > 0) {
      throw new Error(`${messages} messages were handled, but ${unfinished} are not completed`);
    }
    return { messages, seconds };
  },

  async latency(peer, { samples }) {
    const producer = await peer.producer(1, "latency");
    const handled = new Handled();
    const delays = [];
    const worker = await peer.start("latency", ({ at }) => {
      delays.push((microseconds() - at) / 1e6);
      handled.message();
    });
    let begun;
    for (let sample = 0; sample < UNCOUNTED + samples; sample++) {
      if (sample === UNCOUNTED) begun = clock();
      await sleep(PAUSE_MILLISECONDS);
      await producer.enqueue(payload());
      await handled.reach(sample + 1);
    }
    const seconds = clock() - begun;
    await worker.stop();
    await worker.close();
    await producer.close();
    return { messages: samples, seconds, delays: delays.slice(UNCOUNTED) };
  },

  async steady(peer, { seconds: period, producers }) {
    const producer = await peer.producer(producers, "steady");
    const handled = new Handled();
    const delays = [];
    const worker = await peer.start("steady", ({ at }) => {
      delays.push((microseconds() - at) / 1e6);
      handled.message();
    });
    const begun = clock();
    let messages = 0;
    await concurrently(producers, async () => {
      while (clock() - begun < period) {
        await producer.enqueue(payload());
        messages++;
      }
    });
    await handled.reach(messages);
    const seconds = clock() - begun;
    await worker.stop();
    await worker.close();
    await producer.close();
    return { messages, seconds, delays: evenly(delays, MOST_DELAYS) };
  },
};

/** Counts what a worker handles, and wakes who waits for a count. */
class Handled {
  #count = 0;
  #awaited = Infinity;
  #reached = () => {};

  message() {
    if (++this.#count >= this.#awaited) this.#reached();
  }

  async reach(messages) {
    if (this.#count >= messages) return;
    let watch;
    try {
      await new Promise((resolve, reject) => {
        this.#awaited = messages;
        this.#reached = resolve;
        let before = this.#count;
        watch = setInterval(() => {
          if (this.#count === before) {
            reject(new Error(`no message was handled for a minute: ${before} of ${messages} until then`));
          }
          before = this.#count;
        }, PATIENCE_MILLISECONDS);
      });
    } finally {
      clearInterval(watch);
      this.#awaited = Infinity;
    }
  }
}

/** A payload that says it is enqueued now: 200 bytes as JSON. */
function payload() {
  const at = microseconds();
  const around = `{"at":${at},"text":""}`.length;
  return { at, text: "x".repeat(PAYLOAD_BYTES - around) };
}

function microseconds() {
  return Math.round((performance.timeOrigin + performance.now()) * 1e3);
}

function concurrently(tasks, task) {
  return Promise.all(Array.from({ length: tasks }, task));
}

/** At most `most` of the delays, evenly taken. */
function evenly(delays, most) {
  if (delays.length <= most) return delays;
  return Array.from({ length: most }, (_, index) => delays[Math.floor((index * delays.length) / most)]);
}
