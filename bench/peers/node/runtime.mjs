// The peers ask for a newer Node.js than many machines have. It comes with them from the registry
// (optionalDependencies in package.json); imported first, this hands over to it.

import { spawnSync } from "node:child_process";
import { existsSync, realpathSync } from "node:fs";
import { fileURLToPath } from "node:url";

const folder = `node_modules/node-${process.platform}-${process.arch}/bin/node`;
const packaged = fileURLToPath(new URL(folder, import.meta.url));

if (existsSync(packaged) && realpathSync(process.execPath) !== realpathSync(packaged)) {
  const { status } = spawnSync(packaged, process.argv.slice(1), { stdio: "inherit" });
  process.exit(status ?? 1);
}
