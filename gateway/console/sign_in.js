// The form for the API key, shown if the gateway requires one. Stores a key only after the gateway has accepted it.

import {key, loadRights} from './api.js';
import {byId, setText} from './dom.js';

export class SignIn {
  /** Calls `onSignedIn` when the gateway has accepted a key. */
  constructor(onSignedIn) {
    this.section = byId('sign-in');
    this.input = byId('api-key');
    this.error = byId('sign-in-error');
    this.section.querySelector('form').addEventListener('submit', event => {
      event.preventDefault();
      this.#submit(onSignedIn);
    });
  }

  show(words = '') {
    this.section.hidden = false;
    setText(this.error, words);
    this.input.value = '';
    this.input.focus();
  }

  hide() { this.section.hidden = true; }

  async #submit(onSignedIn) {
    const value = this.input.value.trim();
    if (!value) return this.#showError('Enter an API key.');
    if (!key.isValid(value)) return this.#showError('An API key contains only visible ASCII characters.');
    const button = this.section.querySelector('button');
    button.disabled = true;
    try {
      await loadRights({bearer: value, quiet: true});
    } catch (problem) {
      if (problem.status === 401) return this.#showError('The gateway does not accept this key.');
      if (problem.status === 0) return this.#showError('The gateway cannot be reached. Try again in a moment.');
      return this.#showError(`The gateway could not check this key: ${problem.detail || problem.title}`);
    } finally {
      button.disabled = false;
    }
    key.set(value);
    this.input.value = '';
    setText(this.error, '');
    onSignedIn();
  }

  #showError(words) {
    setText(this.error, words);
    this.input.setAttribute('aria-invalid', 'true');
    this.input.select();
    this.input.focus();
  }
}
