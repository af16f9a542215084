// Takes the place of the network in a page that was recorded: what the service would answer.

{
  const kept = JSON.parse(document.getElementById("recorded").textContent);
  const byId = new Map(kept.items.map((item) => [item.id, item]));
  const texts = new Map(Object.entries(kept.texts).map(([text, hits]) => [text.toLowerCase(), hits]));

  const answer = (value, status = 200) => new Response(JSON.stringify(value), { status });

  const unknown = (detail) => answer({ title: "This was not recorded", detail }, 404);

  const shown = ({ picture, ...item }) => item;

  function hit([place, score, distance, weak], at, hits) {
    const tied = hits[at - 1]?.[1] === score || hits[at + 1]?.[1] === score;
    return { ...shown(kept.items[place]), score, distance, weak, tied };
  }

  function search({ items, words, like, where, k = 10, offset = 0 }) {
    const found =
      like !== undefined
        ? kept.like[kept.items.indexOf(byId.get(like))]
        : words
          ? kept.words[words[0]]
          : texts.get(items[0].text?.toLowerCase());
    if (!found) {
      return unknown("This page knows the searches that it names, some titles of icons, and labels. `oasis serve` answers all.");
    }
    const label = where?.$labels?.has;
    const hits = found.map(hit).filter((each) => !label || each.labels.includes(label));
    return answer({ results: [hits.slice(offset, offset + k)] });
  }

  function picture(id) {
    const bytes = Uint8Array.from(atob(byId.get(id).picture), (letter) => letter.charCodeAt(0));
    return bytes.length ? new Response(new Blob([bytes], { type: "image/png" })) : new Response(null, { status: 204 });
  }

  window.fetch = async (path, options = {}) => {
    const [name, query] = path.replace("/v1/", "").split("?");
    const asked = new URLSearchParams(query);
    const id = asked.get("kind") === "number" ? Number(asked.get("id")) : asked.get("id");
    if (name === "search") return search(JSON.parse(options.body));
    if (name === "thumbnail" || name === "preview") return picture(id);
    if (name === "item") return byId.has(id) ? answer(shown(byId.get(id))) : unknown("There is no such icon.");
    if (name === "latest") return answer({ items: kept.items.slice(-Number(asked.get("k"))).reverse().map(shown) });
    if (name === "explain") return answer({ explanations: JSON.parse(options.body).ids.map((each) => ({ id: each, parts: [] })) });
    if (name === "fields") return answer({ fields: [] });
    if (name === "suggest") return answer({ text: null });
    return answer(name === "stats" ? kept.stats : { [name]: kept[name] });
  };
}
