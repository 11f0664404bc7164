// Reads an OpenAPI document: operations, types and examples.

const METHODS = ["get", "post", "put", "patch", "delete"];
const DEEP = 5;

/** A list of [tag, operations] in the document's order, `plans` first. */
export function operationsByTag(api) {
  const found = new Map();
  for (const [path, item] of Object.entries(api.paths ?? {})) {
    for (const method of METHODS.filter((one) => item[one])) {
      const operation = { ...item[method], method, path };
      const tag = operation.tags?.[0] ?? "other";
      if (!found.has(tag)) found.set(tag, []);
      found.get(tag).push(operation);
    }
  }
  return [...found].sort(([a], [b]) => (b === "plans") - (a === "plans"));
}

/** The type of a schema as text. */
export function typeOf(api, schema) {
  const one = resolve(api, schema);
  if (!one) return "anything";
  const several = one.anyOf ?? one.oneOf;
  if (several) return several.map((other) => typeOf(api, other)).join(" or ");
  if (one.enum) return one.enum.join(" | ");
  if (one.type === "array") return `list of ${typeOf(api, one.items)}`;
  return Array.isArray(one.type) ? one.type.join(" or ") : (one.type ?? "object");
}

/** An example body as text: from the document, or generated from the schema. */
export function exampleOf(api, content) {
  const given = content.example ?? Object.values(content.examples ?? {})[0]?.value;
  return JSON.stringify(given ?? sample(api, content.schema, 0), null, 2);
}

/** The target of a `$ref`, or the schema itself. */
export function resolve(api, schema) {
  if (!schema?.$ref) return schema;
  return schema.$ref.split("/").slice(1).reduce((at, step) => at?.[step], api);
}

function sample(api, schema, depth) {
  const one = resolve(api, schema);
  if (!one || depth > DEEP) return null;
  if (one.example !== undefined) return one.example;
  if (one.examples?.length) return one.examples[0];
  if (one.default !== undefined) return one.default;
  if (one.const !== undefined) return one.const;
  if (one.enum) return one.enum[0];
  const several = one.anyOf ?? one.oneOf ?? one.allOf;
  if (several) return sample(api, several[0], depth);
  if (one.type === "array") return [sample(api, one.items, depth + 1)];
  if (one.type === "object" || one.properties) {
    const entries = Object.entries(one.properties ?? {});
    return Object.fromEntries(entries.map(([name, value]) => [name, sample(api, value, depth + 1)]));
  }
  return { string: "…", integer: 1, number: 1.5, boolean: true }[one.type] ?? null;
}
