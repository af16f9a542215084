// What the collection is: asked at the start, and again after every change, by whoever shows it.

import * as api from "./api.js";

export const about = { stats: null, classes: [], fields: [] };

const watchers = [];

// Call now, where it is known already, and after every change.
export function watch(call) {
  watchers.push(call);
  if (about.stats) call(about);
}

export async function refresh() {
  const [stats, classes, fields] = await Promise.all([api.stats(), api.classes(), api.fields()]);
  // a class whose last item is gone is not shown
  const there = classes.filter((each) => each.n || each.n_predicted);
  Object.assign(about, { stats, classes: there, fields });
  for (const call of watchers) call(about);
}

const entriesOf = (stats) => Object.entries(stats.extractor || {});

// An empty collection takes texts and pictures: which of them it has is settled by the first chunk.
const isFresh = (stats) => stats.extractor === null && stats.n_rounds === 0;

export const takes = (field) => isFresh(about.stats) || entriesOf(about.stats).some(([, entry]) => entry.field === field);
// Of what nothing has come yet, nothing can be found.
export const asks = (field) => entriesOf(about.stats).some(([name, entry]) => entry.field === field && name in about.stats.modalities);
export const takesItems = () => takes("text") || takes("image");
export const isEmpty = () => about.stats.n_items === 0;
