// The form that sends one message.
import { html, useState } from "../lib.js";
import { call, path } from "../api.js";
import { Failure, notice } from "../parts/dialog.js";

/** A form that sends one message. */
export function Send({ name, onSent }) {
  const [message, set] = useState({ body: "", contentType: "text/plain", subject: "", durable: true });
  const [error, setError] = useState(null);
  const field = (key) => (event) => set({ ...message, [key]: event.currentTarget.value });
  const go = async (event) => {
    event.preventDefault();
    setError(null);
    try {
      const { subject, ...others } = message;
      await call("POST", path("addresses", name, "messages"), { body: subject ? message : others });
      notice("The message is sent, and accepted.");
      onSent();
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<form class="send" onSubmit=${go}>
    <label>Body <textarea rows="3" value=${message.body} onInput=${field("body")}></textarea></label>
    <label>Subject <input value=${message.subject} onInput=${field("subject")} /></label>
    <label>Content type <input value=${message.contentType} onInput=${field("contentType")} /></label>
    <label class="check"><input type="checkbox" checked=${message.durable}
      onChange=${(event) => set({ ...message, durable: event.currentTarget.checked })} /> durable</label>
    <${Failure} error=${error} /><footer><button class="main">Send</button></footer></form>`;
}
