import { add, make } from "./dom.js";

export async function render(main, parameters) {
  add(main, make("h1", null, "Runs"));
}
