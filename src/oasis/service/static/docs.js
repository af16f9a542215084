// The description of the API, for people.

import { $, el, replace, showError } from "./dom.js";

function schemaText(schema, all, depth = 0) {
  if (!schema) return "anything";
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return depth > 3 ? name : schemaText(all[name], all, depth);
  }
  if (schema.anyOf) return schema.anyOf.map((each) => schemaText(each, all, depth)).join(" | ");
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `[${schemaText(schema.items, all, depth)}, …]`;
  if (schema.type === "object" && schema.properties) {
    const pad = "  ".repeat(depth + 1);
    const lines = Object.entries(schema.properties).map(([name, each]) => {
      const note = each.description ? `   // ${each.description}` : "";
      const optional = (schema.required || []).includes(name) ? "" : "?";
      return `${pad}${name}${optional}: ${schemaText(each, all, depth + 1)}${note}`;
    });
    return `{\n${lines.join("\n")}\n${"  ".repeat(depth)}}`;
  }
  if (schema.type === "object") {
    const inner = schema.additionalProperties;
    return `{name: ${inner && inner !== true ? schemaText(inner, all, depth) : "anything"}}`;
  }
  return schema.type || "anything";
}

function operation(path, method, found, all) {
  const bodies = Object.entries(found.requestBody?.content || {}).map(([kind, each]) => [
    el("h3", {}, `Body: ${kind}`),
    el("pre", { tabindex: "0" }, schemaText(each.schema, all)),
  ]);
  const query = (found.parameters || []).map((each) =>
    el("li", {}, el("code", {}, each.name), ` ${schemaText(each.schema, all)}: ${each.description || ""}`),
  );
  const answer = found.responses?.["200"]?.content?.["application/json"];
  return el(
    "details",
    { class: "panel" },
    el("summary", {}, el("b", { class: "method" }, method.toUpperCase()), " ", el("code", {}, path)),
    el("p", {}, found.description || found.summary || ""),
    query.length ? [el("h3", {}, "Query"), el("ul", {}, query)] : [],
    bodies.flat(),
    answer ? [el("h3", {}, "Answer"), el("pre", { tabindex: "0" }, schemaText(answer.schema, all))] : [],
  );
}

try {
  const response = await fetch("/openapi.json");
  const described = await response.json();
  $("#about").textContent = described.info.description.replaceAll("`", "");
  const all = described.components.schemas;
  replace(
    $("#operations"),
    Object.entries(described.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, found]) => operation(path, method, found, all)),
    ),
  );
} catch (error) {
  showError(error);
}
