// Pictures that were searched with, kept by this browser alone, so that back and reload find them.

const DATABASE = "oasis-pictures";
const STORE = "pictures";
const MOST = 24;

function opened() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

async function within(mode, act) {
  const database = await opened();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = database.transaction(STORE, mode);
      const answer = act(transaction.objectStore(STORE));
      transaction.oncomplete = () => resolve(answer.result);
      transaction.onerror = () => reject(transaction.error);
      transaction.onabort = () => reject(transaction.error);
    });
  } finally {
    database.close();
  }
}

const now = new Map();

// Keys begin with the time, so that the oldest come first.
export async function keep(file) {
  const random = crypto.getRandomValues(new Uint32Array(1))[0].toString(36);
  const key = `${Date.now().toString(36)}-${random}`;
  now.set(key, file);
  try {
    await within("readwrite", (store) => store.put(file, key));
    const keys = await within("readonly", (store) => store.getAllKeys());
    for (const old of keys.slice(0, -MOST)) await within("readwrite", (store) => store.delete(old));
  } catch {
    // a private window keeps nothing: the picture is there until the page is closed
  }
  return key;
}

// The picture, or null where this browser has none of that key.
export async function kept(key) {
  if (now.has(key)) return now.get(key);
  try {
    return (await within("readonly", (store) => store.get(key))) || null;
  } catch {
    return null;
  }
}
