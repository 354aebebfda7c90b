// Elements, and pictures of a few pixels, which CSS makes large.

const byId = (id) => document.getElementById(id);

/** Paint width × height pixels: colour(i) is [red, green, blue, opacity from 0 to 1, or none for 1]. */
function paint(canvas, width, height, colour) {
  canvas.width = width;
  canvas.height = height;
  const pixels = new ImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    const [red, green, blue, opacity = 1] = colour(i);
    pixels.data.set([red, green, blue, Math.round(255 * opacity)], 4 * i);
  }
  canvas.getContext("2d").putImageData(pixels, 0, 0);
}

const paintPicture = (canvas, { data }) => paint(canvas, width, height, (i) => data.subarray(3 * i, 3 * i + 3));

/** One pixel a patch, of a map's values (T) whose first is the class token's. */
function paintPatches(canvas, { values, kind, largest }, opacity = 1) {
  const colour = colouring(kind, largest);
  paint(canvas, columns, rows, (i) => [...colour(values[i + 1]), opacity]);
}

/** A map of a few pixels over a picture, in one canvas as large as the picture. */
function lay(canvas, image, map, opacity) {
  Object.assign(canvas, { width: image.width, height: image.height });
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(image, 0, 0);
  context.globalAlpha = opacity;
  context.drawImage(map, 0, 0, image.width, image.height);
}

/**
 * The legend of a map (`scaleOf`): its colours between its least and largest number, as they are over black pixels, at
 * the bottom, to white ones at the top if they let the image through. From 0 to 0 it says nothing.
 */
function drawLegend(parent, { kind, largest, least, most }, opacity = 1) {
  const ramp = picture("ramp"), colour = colouring(kind, 1);
  paint(ramp, 64, 16, (i) => {
    const below = Array(3).fill(255 * (1 - Math.floor(i / 64) / 15)), level = (i % 64) / 63;
    return mixed(below, colour(kind === "signed" ? 2 * level - 1 : level), opacity);
  });
  parent.classList.toggle("none", largest === 0);
  parent.replaceChildren(element("span", { textContent: least }), ramp, element("span", { textContent: most }));
}

/** A new element with these properties, among them what happens on an event, and these children. */
function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** A name whose letters, from left to right or from right to left, don't mix with the text around it. */
const bidi = (textContent) => element("bdi", { textContent });

const picture = (className, style = "") => element("canvas", { className, style, ariaHidden: "true" });

/** What a mouse, but no finger, does over an element: point(true) when it comes, point(false) when it goes. */
const hovered = (point) => ({
  onpointerenter: ({ pointerType }) => pointerType === "mouse" && point(true),
  onpointerleave: ({ pointerType }) => pointerType === "mouse" && point(false),
});
