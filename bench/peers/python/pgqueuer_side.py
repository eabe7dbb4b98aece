"""pgqueuer (PyPI) as a peer of the benchmark.

It reads one request per line from standard input and writes one answer per line to standard output,
both JSON; standard error is for its own words.

Tuned, by medians of alternating drains of 30,000 on two shared cores (messages per second; in force:
2 workers in the process, each with a connection of its own and batches of 500):

    in force (first run; a second one of five rounds)                  10,500; 12,100
    5 workers, batches of 10 (as its own benchmark; first run)                  3,200
    5 workers, batches of 100                                            7,800; 8,900
    2 workers, batches of 1,000                                         8,600; 10,500
    3 workers, batches of 1,000 (first run); 300 (second run)           7,300; 11,400
    2 workers, batches of 1,000, durability "balanced" (first run)              7,400
    5 workers, batches of 100; 500 (another run, of 20,000)            13,100; 10,200
    2 workers, batches of 1,000 (that run)                                     14,500
    5 workers, batches of 100, its autovacuum settings (that run)               7,800

Durability "balanced", which leaves its log unlogged, gained nothing, so the default "durable" stays.
In the steady state one worker beat two (825 to 537 messages per second: each is notified of each
message). It runs on uvloop, as its own command line does. Bulk enqueueing is one call with lists.

The end of a drain is the end of a graceful stop, which writes the completions that are still in a
buffer; one that was timed took 36 ms.
"""

import asyncio
import json
import sys
import time
from importlib.metadata import version

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

ENTRYPOINT = "bench"
# (workers, batch of each)
SETTINGS = {"drain": (2, 500), "steady": (1, 500), "latency": (1, 10)}
PAYLOAD_BYTES = 200
BATCH = 1_000
UNCOUNTED = 5
PAUSE_SECONDS = 0.04
MOST_DELAYS = 20_000
# How long a worker may be silent before the workload is given up.
PATIENCE_SECONDS = 60


async def serve():
    if len(sys.argv) != 2:
        raise SystemExit("expected the URL of an empty PostgreSQL database as the only argument")
    peer = await Peer.deploy(sys.argv[1])
    say({"ready": f"pgqueuer {version('pgqueuer')}"})
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            request = json.loads(line)
            workload = WORKLOADS.get(request.pop("do"))
            if workload is None:
                raise ValueError("unknown request")
            say(await workload(peer, **request))
        except Exception as error:
            say({"error": f"{type(error).__name__}: {error}"})
    await peer.connection.close()


def say(answer):
    print(json.dumps(answer), flush=True)


class Peer:
    """pgqueuer, deployed in an empty database."""

    def __init__(self, url, connection):
        self.url = url
        self.connection = connection

    @classmethod
    async def deploy(cls, url):
        connection = await asyncpg.connect(url)
        # The driver starts two processes on one database, one after the other.
        if await connection.fetchval("select to_regclass('pgqueuer')") is None:
            await Queries(AsyncpgDriver(connection)).install()
        return cls(url, connection)

    async def clean(self):
        await self.connection.execute("truncate pgqueuer, pgqueuer_log, pgqueuer_statistics")

    async def unfinished(self):
        # A completed job moves to the log.
        return await self.connection.fetchval("select count(*) from pgqueuer")

    async def connect(self, connections):
        return [await asyncpg.connect(self.url) for _ in range(connections)]

    async def start(self, workload, handler):
        workers, batch = SETTINGS[workload]
        return Worker(await self.connect(workers), handler, batch)


class Worker:
    """Workers of pgqueuer in this process, one for each connection."""

    def __init__(self, connections, handler, batch):
        self.connections = connections
        self.queues = [PgQueuer(AsyncpgDriver(connection)) for connection in connections]
        for queue in self.queues:
            queue.entrypoint(ENTRYPOINT)(handler)
        self.begun = time.perf_counter()
        self.running = asyncio.gather(*(queue.run(batch_size=batch) for queue in self.queues))

    async def stop(self):
        for queue in self.queues:
            queue.shutdown.set()
        await self.running

    async def close(self):
        await close(self.connections)


class Handled:
    """Counts what a worker handles, and wakes who waits for a count."""

    def __init__(self):
        self.count = 0
        self.awaited = None
        self.reached = asyncio.Event()
        self.delays = []

    async def message(self, job):
        self.count += 1
        if self.count == self.awaited:
            self.reached.set()

    async def timed_message(self, job):
        self.delays.append((microseconds() - json.loads(job.payload)["at"]) / 1e6)
        await self.message(job)

    async def reach(self, messages):
        self.awaited = messages
        self.reached.clear()
        while self.count < messages:
            before = self.count
            try:
                await asyncio.wait_for(self.reached.wait(), PATIENCE_SECONDS)
            except asyncio.TimeoutError:
                if self.count == before:
                    raise RuntimeError(
                        f"no message was handled for a minute: {before} of {messages} until then"
                    ) from None


async def clean(peer):
    await peer.clean()
    return {"messages": 0, "seconds": 0}


async def enqueue(peer, tasks, each):
    connections = await peer.connect(tasks)

    async def task(connection):
        queries = Queries(AsyncpgDriver(connection))
        for _ in range(each):
            await queries.enqueue(ENTRYPOINT, payload())

    begun = time.perf_counter()
    await asyncio.gather(*map(task, connections))
    seconds = time.perf_counter() - begun
    await close(connections)
    return {"messages": tasks * each, "seconds": seconds}


async def fill(peer, messages):
    connections = await peer.connect(1)
    queries = Queries(AsyncpgDriver(connections[0]))
    begun = time.perf_counter()
    for left in range(messages, 0, -BATCH):
        batch = min(left, BATCH)
        await queries.enqueue([ENTRYPOINT] * batch, [payload() for _ in range(batch)], [0] * batch)
    seconds = time.perf_counter() - begun
    await close(connections)
    return {"messages": messages, "seconds": seconds}


async def drain(peer, messages):
    handled = Handled()
    worker = await peer.start("drain", handled.message)
    await handled.reach(messages)
    await worker.stop()
    seconds = time.perf_counter() - worker.begun
    await worker.close()
    if unfinished := await peer.unfinished():
        raise RuntimeError(f"{messages} messages were handled, but {unfinished} are not completed")
    return {"messages": messages, "seconds": seconds}


async def latency(peer, samples):
    connections = await peer.connect(1)
    queries = Queries(AsyncpgDriver(connections[0]))
    handled = Handled()
    worker = await peer.start("latency", handled.timed_message)
    begun = None
    for sample in range(UNCOUNTED + samples):
        if sample == UNCOUNTED:
            begun = time.perf_counter()
        await asyncio.sleep(PAUSE_SECONDS)
        await queries.enqueue(ENTRYPOINT, payload())
        await handled.reach(sample + 1)
    seconds = time.perf_counter() - begun
    await worker.stop()
    await worker.close()
    await close(connections)
    return {"messages": samples, "seconds": seconds, "delays": handled.delays[UNCOUNTED:]}


async def steady(peer, seconds, producers):
    connections = await peer.connect(producers)
    handled = Handled()
    worker = await peer.start("steady", handled.timed_message)
    begun = time.perf_counter()

    async def task(connection):
        queries = Queries(AsyncpgDriver(connection))
        messages = 0
        while time.perf_counter() - begun < seconds:
            await queries.enqueue(ENTRYPOINT, payload())
            messages += 1
        return messages

    messages = sum(await asyncio.gather(*map(task, connections)))
    await handled.reach(messages)
    elapsed = time.perf_counter() - begun
    await worker.stop()
    await worker.close()
    await close(connections)
    return {"messages": messages, "seconds": elapsed, "delays": evenly(handled.delays, MOST_DELAYS)}


WORKLOADS = {
    "clean": clean,
    "enqueue": enqueue,
    "fill": fill,
    "drain": drain,
    "latency": latency,
    "steady": steady,
}


async def close(connections):
    for connection in connections:
        await connection.close()


def payload():
    """A payload that says it is enqueued now: 200 bytes of JSON."""
    head = f'{{"at":{microseconds()},"text":"'
    return f'{head}{"x" * (PAYLOAD_BYTES - len(head) - 2)}"}}'.encode()


def microseconds():
    return time.time_ns() // 1_000


def evenly(delays, most):
    """At most `most` of the delays, evenly taken."""
    if len(delays) <= most:
        return delays
    return [delays[index * len(delays) // most] for index in range(most)]


if __name__ == "__main__":
    uvloop.run(serve())
