// The API key: asked for where the gateway wants one, tried before it is kept.

import {json, key} from './api.js';
import {byId, setText} from './dom.js';

export class SignIn {
  /** `entered` is called once a key has been found good. */
  constructor(entered) {
    this.section = byId('sign-in');
    this.input = byId('api-key');
    this.error = byId('sign-in-error');
    this.section.querySelector('form').addEventListener('submit', event => {
      event.preventDefault();
      this.#submit(entered);
    });
  }

  show(words = '') {
    this.section.hidden = false;
    setText(this.error, words);
    this.input.value = '';
    this.input.focus();
  }

  hide() { this.section.hidden = true; }

  async #submit(entered) {
    const value = this.input.value.trim();
    if (!value) return this.#refuse('Enter an API key.');
    if (!key.isPlain(value)) return this.#refuse('An API key has visible ASCII characters only.');
    const button = this.section.querySelector('button');
    button.disabled = true;
    try {
      await json('/v1/leases?limit=1', {bearer: value, quiet: true});
    } catch (problem) {
      // Any other answer came to somebody whom the gateway knows; the panels say what this key may not see.
      if (problem.status === 401) return this.#refuse('This gateway does not know that key.');
      if (problem.status === 0) return this.#refuse('The gateway cannot be reached. Try again in a moment.');
    } finally {
      button.disabled = false;
    }
    key.set(value);
    this.input.value = '';
    setText(this.error, '');
    entered();
  }

  #refuse(words) {
    setText(this.error, words);
    this.input.setAttribute('aria-invalid', 'true');
    this.input.select();
    this.input.focus();
  }
}
