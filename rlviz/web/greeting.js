// What the playground's page shows while its kernel starts: a recorded run that plays. It runs before the page is read to its end.
import { unpack } from "./packed.js";
import { player } from "./player.js";

const packed = document.getElementById("greeting-run").textContent;
player(document.getElementById("greeting"), [{ name: "", title: "", load: () => unpack(packed) }]);
