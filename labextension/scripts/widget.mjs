// Bundles the widget's module and style into the Python package.

import { build } from 'esbuild';

await build({
  bundle: true,
  entryNames: 'widget',
  entryPoints: ['src/widget.ts', 'style/view.css'],
  format: 'esm',
  legalComments: 'eof',
  logLevel: 'warning',
  minify: true,
  outdir: '../tfgpu_magic/notebook/static',
  target: 'es2022'
});
