// Returns the texts whose contrast is below WCAG 2 AA: 4.5, or 3 for large ones. The colour behind a text is that of its
// nearest ancestor that has one; inside a picture it is that of the box, or of the picture.
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return { r, g, b, a: a / 255 };
  };
  const luminance = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    const rect = element.closest(".box")?.querySelector("rect");
    if (rect) return rgba(getComputedStyle(rect).fill);
    for (let e = element; e; e = e.parentElement) {
      const color = rgba(getComputedStyle(e).backgroundColor);
      if (color.a > 0.99) return color;
    }
    return rgba(getComputedStyle(document.body).backgroundColor);
  };
  const seen = (element) => element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }) &&
    !element.closest(".hidden") && element.getBoundingClientRect().width > 1;
  const bad = [];
  let checked = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || ["SCRIPT", "NOSCRIPT", "OPTION", "title"].includes(element.tagName) || !seen(element)) continue;
    const style = getComputedStyle(element);
    const front = rgba(element instanceof SVGElement ? style.fill : style.color);
    const opacity = (e) => (e ? Number(getComputedStyle(e).opacity) * opacity(e.parentElement) : 1);
    const back = behind(element);
    const a = front.a * opacity(element);
    const mixed = { r: front.r * a + back.r * (1 - a), g: front.g * a + back.g * (1 - a), b: front.b * a + back.b * (1 - a) };
    const [light, dark] = [luminance(mixed), luminance(back)].sort((x, y) => y - x);
    const ratio = (light + 0.05) / (dark + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || size >= 18.66 && Number(style.fontWeight) >= 700;
    checked++;
    if (ratio < (large ? 3 : 4.5)) {
      bad.push(`${ratio.toFixed(2)} ${element.tagName}.${element.getAttribute("class") ?? ""}: ${text.slice(0, 40)}`);
    }
  }
  return { checked, bad };
})()
