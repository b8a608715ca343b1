// The dialog to revoke a lease: requires a reason and restores the focus.

import {fetchJson, urlFor} from './api.js';
import {announce, byId, el, setText} from './dom.js';
import {holder} from './words.js';

export class RevokeDialog {
  /** Calls `onRevoked(lease)` when a lease was revoked. */
  constructor(onRevoked) {
    this.dialog = byId('revoke');
    this.reason = byId('revoke-reason');
    this.error = byId('revoke-error');
    this.button = this.dialog.querySelector('[type=submit]');
    this.onRevoked = onRevoked;
    this.dialog.querySelector('button[value=cancel]').addEventListener('click', () => this.dialog.close());
    this.dialog.querySelector('form').addEventListener('submit', event => {
      event.preventDefault();
      this.#submit();
    });
    this.dialog.addEventListener('close', () => this.#restoreFocus());
  }

  open(lease, opener) {
    this.lease = lease;
    this.button.disabled = false; // the request for another lease may still run
    this.opener = opener;
    this.reason.value = '';
    setText(this.error, '');
    byId('revoke-lease').replaceChildren(
      el('dt', {}, 'Resource'), el('dd', {}, lease.resource),
      el('dt', {}, 'Holder'), el('dd', {}, holder(lease)),
      el('dt', {}, 'Token'), el('dd', {class: 'tabular'}, String(lease.fencing_token)));
    if (lease.mode) byId('revoke-lease').append(el('dt', {}, 'Mode'),
      el('dd', {}, 'shared; leases that share the resource with the same token are revoked too'));
    this.dialog.showModal();
    this.reason.focus();
    this.#showOtherResources(lease);
  }

  /** Names the other resources of the lease: it is revoked on all of them. */
  async #showOtherResources(lease) {
    const facts = await fetchJson(urlFor('/v1/resource', {resource: lease.resource})).catch(() => null);
    const held = [facts?.lease, ...facts?.shared_leases ?? []]
      .find(each => each?.fencing_token === lease.fencing_token && each.grant === lease.grant);
    if (this.lease !== lease || !held?.resources) return;
    byId('revoke-lease').append(el('dt', {}, 'Also revoked'),
      el('dd', {}, [...held.resources, ...held.shared ?? []].filter(name => name !== lease.resource).join(', ')));
  }

  async #submit() {
    const reason = this.reason.value.trim();
    if (!reason) {
      setText(this.error, 'Enter a reason; the history records it.');
      this.reason.focus();
      return;
    }
    this.button.disabled = true;
    const {lease} = this;
    try {
      await fetchJson(urlFor('/v1/resource/lease', {resource: lease.resource}),
        {method: 'DELETE', body: {reason, expected_token: lease.fencing_token}});
      if (this.#shows(lease)) {
        this.opener = undefined; // its row is about to be removed
        this.dialog.close();
      }
      announce(`The lease on ${lease.resource} was revoked.`);
      this.onRevoked(lease);
    } catch (problem) {
      const detail = problem.status === 0
        ? 'It is not known whether the lease was revoked; check the list and try again.' : problem.detail;
      const text = problem.status === 404 ? 'The resource has no lease any more.' : `${problem.title}. ${detail}`;
      if (this.#shows(lease)) setText(this.error, text);
      else announce(`Revoking the lease on ${lease.resource}: ${text}`);
    } finally {
      if (this.#shows(lease)) this.button.disabled = false;
    }
  }

  /**
   * Whether the dialog is open for this lease; the user may have closed it,
   * or opened it for another one, while a request ran.
   */
  #shows(lease) {
    return this.dialog.open && ['resource', 'fencing_token', 'grant'].every(key => this.lease[key] === lease[key]);
  }

  /** Focuses the button that opened the dialog, or the panel if the button was removed with its lease. */
  #restoreFocus() {
    const target = this.opener?.isConnected ? this.opener : byId('leases-title');
    target.focus();
  }
}
