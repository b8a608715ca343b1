#pragma once

#include <lockcore/node_status.hpp>
#include <lockcore/ports.hpp>
#include <lockcore/types.hpp>

#include <string>

namespace lockcore {

/// What Redis counts of commands by which a node may forget within one life (command_marks.lua).
struct command_marks {
    std::string text = "0 0 0";  ///< 'lost resets set', as the scripts compare it.
    std::string lost = "0 0";    ///< 'lost resets': where this changed, data may be gone.
    std::string evicted = "0";   ///< evicted_keys

    /// Whether anything of the kind happened since the process began.
    bool lost_any() const { return lost != "0 0" || evicted != "0"; }
};

/// What a node says of itself on a new connection.
struct node_facts {
    std::string run_id;   ///< Of the live process.
    std::string role;     ///< master, slave, sentinel
    std::string too_old;  ///< Its version, if it is one that does not count commands as it has to.
    std::string maxmemory_policy;
    bool cluster_mode = false;
    bool syncs_every_write = false;  ///< As its configuration and its last write show it.
    command_marks marks;             ///< Live; read before the configuration.
    std::string admitted_run_id;     ///< fg:node.run; empty if it has none.
    command_marks admitted_marks;    ///< Those under which it was admitted, or last looked at.
    bool kept_unsynced = false;      ///< The register knows that this life did not sync every write.
    std::string claim;  ///< fg:node.claim: written by the first who looked at these data; gone when they are wiped, or
                        ///< the admission was deleted.
    epoch admitted_epoch{};  ///< fg:node.base / 2^32
    std::string same_as;     ///< Name of another configured node with the same run id; empty if there is none.

    bool is_admitted() const { return !run_id.empty() && admitted_run_id == run_id; }
};

/// Why a server like this can never be a node, and what to change; empty if it can.
std::string why_no_node(const node_facts& facts);

/// Decides whether a node may vote: "what next for this node?" (docs/protocol.md R8–R10).
///
/// Inputs: what was found (past tense). Actions: what the driver is to do next, with how long to wait before it.
/// Threads: not safe. Time comes in as an argument.
class node_supervisor {
  public:
    enum class action {
        connect,        ///< Open a new connection (after `delay`).
        identify,       ///< Read node_facts, leaving a claim in fg:node if it has none (after `delay`).
        find_record,    ///< Read what the register knows of the node.
        draw_epoch,     ///< Draw an epoch from the register for life().
        note_unsynced,  ///< Have the register keep that this life does not sync every write.
        forget,         ///< Delete the node's admission: fg:node.run and the claim.
        readmit,        ///< Run READMIT with the run id, the drawn epoch and the marks.
        vote,           ///< Let it vote until something happens.
    };
    struct step {
        action next = action::connect;
        milliseconds delay{0};
    };

    explicit node_supervisor(milliseconds max_ttl) : max_ttl_(max_ttl) {}

    step connected();
    /// The connection failed or broke, or the node did not answer for too long.
    step disconnected(std::string why);
    step identified(node_facts facts, monotonic_time now);
    step record_found(node_record record, monotonic_time now);
    step epoch_drawn(epoch drawn);
    step unsynced_noted();
    /// The register could not be reached, or refused.
    step register_failed(std::string why);
    /// The admission was deleted; or the node refused that, and `refusal` is what it said.
    step forgotten(std::string refusal);
    /// READMIT was refused by the node itself (rights, memory, …): the draw stays good, and is tried again after a
    /// while.
    step readmit_refused(std::string why);
    /// READMIT's answer: OK or ALREADY (`admitted`), or GONE.
    step readmit_answered(bool admitted);
    /// A script answered UNINIT: the node forgot that it was admitted.
    step found_not_admitted();
    /// A script was refused with another error (out of memory, read-only, loading, …): it does not vote until it is
    /// looked at again.
    step commands_refused(std::string why);

    node_state state() const { return state_; }
    const std::string& detail() const { return detail_; }
    const node_facts& facts() const { return facts_; }
    epoch admitted_epoch() const { return epoch_; }
    milliseconds quarantine_left(monotonic_time now) const;
    /// The epoch that READMIT is to carry.
    epoch drawn() const { return drawn_; }
    /// What must not have changed between the look and the readmission: the process and its data.
    std::string life() const {
        return facts_.run_id + '/' + facts_.claim + '/' + facts_.marks.lost + '/' + facts_.marks.evicted;
    }

    /// How often a node that can't vote is looked at again.
    static constexpr milliseconds look_again{500};
    static constexpr milliseconds reconnect_min{50}, reconnect_max{1'000};

  private:
    step refuse(std::string why);
    /// Why an admitted node has forgotten within its life; empty if it has not.
    std::string why_forgot() const;
    step review();
    step quarantine_or_draw(monotonic_time now);

    milliseconds max_ttl_;
    node_state state_ = node_state::unreachable;
    std::string detail_ = "not connected yet";
    node_facts facts_;
    node_record record_;
    std::string record_for_;  ///< The life() that was seen before the register was asked; empty: not asked.
    epoch drawn_{};
    std::string drawn_for_;  ///< The life() that was seen before the draw; empty: nothing drawn.
    epoch epoch_{};
    std::string first_seen_life_;  ///< The life() that was found not admitted.
    monotonic_time first_seen_at_{};
    monotonic_time quarantine_until_{};
    milliseconds reconnect_delay_ = reconnect_min;
};

}  // namespace lockcore
