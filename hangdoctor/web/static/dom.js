// Small helpers for the page's elements. Text from the job is inserted as text, never as markup.

export const $ = (id) => document.getElementById(id);

// Sets the text where it has changed: a screen reader or a selection is not disturbed each second.
export function say(place, words) {
  if (place.textContent !== words) place.textContent = words;
}

export function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

export function clip(text, room) {
  return text.length > room ? `${text.slice(0, room - 1)}…` : text;
}

// Pairs of name and value in a <dl>.
export function sayFacts(place, facts) {
  while (place.children.length > facts.length) place.lastChild.remove();
  while (place.children.length < facts.length) {
    const box = element("div");
    box.append(element("dt"), element("dd"));
    place.append(box);
  }
  facts.forEach(([name, value], i) => {
    const [term, description] = place.children[i].children;
    say(term, name);
    say(description, value);
  });
}
