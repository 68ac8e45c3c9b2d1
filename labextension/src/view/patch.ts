// JSON Merge Patch (RFC 7386), without changing what it is given: what the patch does not touch stays the same object.

/**
 * Return what a patch makes of a value.
 *
 * An object that the patch would leave as it is comes back itself, so that readers can tell by identity what changed.
 */
export function merge(target: unknown, patch: unknown): unknown {
  if (!isObject(patch)) {
    return patch;
  }
  const before = isObject(target) ? target : {};
  let after: Record<string, unknown> | null = isObject(target) ? null : {};
  for (const key of Object.keys(patch)) {
    const there = Object.hasOwn(before, key);
    if (patch[key] === null) {
      if (there) {
        after ??= { ...before };
        Reflect.deleteProperty(after, key);
      }
      continue;
    }
    const value = merge(there ? before[key] : undefined, patch[key]);
    if (!there || value !== before[key]) {
      after ??= { ...before };
      put(after, key, value);
    }
  }
  return after ?? before;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Set a property of an object's own, also where its name is `__proto__`. */
function put(object: Record<string, unknown>, key: string, value: unknown): void {
  Object.defineProperty(object, key, { value, configurable: true, enumerable: true, writable: true });
}
