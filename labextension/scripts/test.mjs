// Runs the unit tests with Node's own runner; esbuild makes them one file that it can read.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';

const folder = mkdtempSync(join(tmpdir(), 'tfgpu-magic-tests-'));
try {
  await build({
    // What Lumino's packages require of Node is found, though the files are modules.
    banner: { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" },
    bundle: true,
    entryPoints: readdirSync('tests')
      .filter(name => name.endsWith('.test.ts'))
      .map(name => join('tests', name)),
    format: 'esm',
    logLevel: 'warning',
    outExtension: { '.js': '.mjs' },
    outdir: folder,
    platform: 'node',
    sourcemap: 'inline'
  });
  const tests = readdirSync(folder).map(name => join(folder, name));
  const run = spawnSync(process.execPath, ['--enable-source-maps', '--test', ...tests], { stdio: 'inherit' });
  process.exitCode = run.status ?? 1;
} finally {
  rmSync(folder, { recursive: true });
}
