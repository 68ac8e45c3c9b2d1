// The rules that the front end is held to: TypeScript's strict ones, and Jupyter's for extensions.

import eslint from '@eslint/js';
import jupyter from '@jupyter/eslint-plugin';
import typescript from 'typescript-eslint';

export default typescript.config(
  { ignores: ['lib/', 'node_modules/', '.yarn/'] },
  eslint.configs.recommended,
  {
    files: ['src/**/*.ts', 'tests/**/*.ts'],
    extends: [...typescript.configs.strictTypeChecked],
    languageOptions: { parserOptions: { project: './tsconfig.check.json', tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      '@typescript-eslint/no-non-null-assertion': 'off', // an index within bounds is not unknown
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      '@typescript-eslint/no-unused-expressions': ['error', { allowTernary: true }],
      'no-console': ['error', { allow: ['error', 'warn'] }],
      eqeqeq: 'error'
    }
  },
  // Node's runner awaits the tests itself.
  { files: ['tests/**/*.ts'], rules: { '@typescript-eslint/no-floating-promises': 'off' } },
  { plugins: { jupyter } },
  ...jupyter.configs.recommended,
  // All of it is there at once: the panel's place is restored, and the status bar item lives without it.
  { files: ['src/index.ts'], rules: { 'jupyter/prefer-lazy-imports': 'off' } },
  {
    files: ['scripts/**', 'tests/page/**', '*.js'],
    languageOptions: { globals: { console: 'readonly', process: 'readonly' } }
  }
);
