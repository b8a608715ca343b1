// Taking a lease away: a dialog that wants a reason, and gives the focus back.

import {json} from './api.js';
import {announce, byId, el, setText} from './dom.js';
import {holder} from './words.js';

export class RevokeDialog {
  /** `done(lease)` is called when a lease was taken away. */
  constructor(done) {
    this.dialog = byId('revoke');
    this.reason = byId('revoke-reason');
    this.error = byId('revoke-error');
    this.done = done;
    this.dialog.querySelector('button[value=cancel]').addEventListener('click', () => this.dialog.close());
    this.dialog.querySelector('form').addEventListener('submit', event => {
      event.preventDefault();
      this.#submit();
    });
    this.dialog.addEventListener('close', () => this.#giveFocusBack());
  }

  open(lease, opener) {
    this.lease = lease;
    this.opener = opener;
    this.reason.value = '';
    setText(this.error, '');
    byId('revoke-lease').replaceChildren(
      el('dt', {}, 'Resource'), el('dd', {}, lease.resource),
      el('dt', {}, 'Holder'), el('dd', {}, holder(lease)),
      el('dt', {}, 'Token'), el('dd', {class: 'tabular'}, String(lease.fencing_token)));
    this.dialog.showModal();
    this.reason.focus();
    this.#tellOthers(lease);
  }

  /** A lease on several resources goes as a whole. */
  async #tellOthers(lease) {
    const facts = await json(`/v1/resources/${encodeURIComponent(lease.resource)}`).catch(() => null);
    const held = facts?.lease;
    if (this.lease !== lease || held?.fencing_token !== lease.fencing_token || !held.resources) return;
    byId('revoke-lease').append(el('dt', {}, 'Goes with it'), el('dd', {}, held.resources.filter(name => name !== lease.resource).join(', ')));
  }

  async #submit() {
    const reason = this.reason.value.trim();
    if (!reason) {
      setText(this.error, 'Say why: the history keeps it.');
      this.reason.focus();
      return;
    }
    const button = this.dialog.querySelector('[type=submit]');
    button.disabled = true;
    const {lease} = this;
    try {
      await json(`/v1/resources/${encodeURIComponent(lease.resource)}/lease`,
        {method: 'DELETE', body: {reason, expected_token: lease.fencing_token}});
      this.opener = undefined; // its row is about to go
      this.dialog.close();
      announce(`The lease on ${lease.resource} was taken away.`);
      this.done(lease);
    } catch (problem) {
      const gone = problem.status === 404 ? 'Nobody holds it any more.' : `${problem.title}. ${problem.detail}`;
      setText(this.error, gone);
    } finally {
      button.disabled = false;
    }
  }

  /** To the button that opened the dialog, or to the panel where that went away with its lease. */
  #giveFocusBack() {
    const to = this.opener?.isConnected ? this.opener : byId('leases-title');
    to.focus();
  }
}
