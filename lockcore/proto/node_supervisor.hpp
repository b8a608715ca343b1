#pragma once

#include <lockcore/nodes.hpp>
#include <lockcore/types.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

namespace lockcore {

/// The counts of Redis of the commands that can remove leases or change how they are stored (command_marks.lua).
struct command_marks {
    std::string text = "0 0 0";  ///< 'lost resets set', in the form that the scripts compare.
    std::string lost = "0 0";    ///< 'lost resets': after a change of these, leases may be missing.
    std::string evicted = "0";   ///< evicted_keys of INFO.

    /// Returns whether the process has lost no data since it began, and still has the settings with which it began.
    bool is_unchanged_since_start() const { return text == "0 0 0" && evicted == "0"; }
};

/// What was read from a node on a new connection, or at a check of its settings.
struct node_facts {
    std::string run_id;            ///< The run id of the live process.
    std::string role;              ///< master, slave or sentinel.
    std::string outdated_version;  ///< The version of Redis if it is too old; empty otherwise.
    std::string maxmemory_policy;
    bool cluster_mode = false;
    bool syncs_every_write = false;  ///< By its configuration and by the status of its append-only file.
    command_marks marks;             ///< The live counts, read before the configuration.
    std::string admitted_run_id;     ///< fg:node.run; empty if there is none.
    command_marks admitted_marks;    ///< The counts at the admission or at the last check of the settings.
    bool kept_unsynced = false;      ///< The register has recorded that this life did not sync every write.
    /// fg:node.claim: written by the first gateway that read these data, marked with its cell; removed with the data or
    /// the admission.
    std::string claim;
    epoch admitted_epoch{};         ///< fg:node.base / 2^32
    epoch floor_epoch{};            ///< That of fg:node.floor (STORAGE GENERATION); 0: none was announced.
    std::string other_cell;         ///< Why the node is none of this cell (find_other_cell); empty if it is.
    std::string implausible_epoch;  ///< Why its epoch counts for nothing (find_implausible_epoch); empty if it counts.
    std::string duplicate_of;  ///< The name of another configured node with the same run id; empty if there is none.

    bool is_admitted() const { return !run_id.empty() && admitted_run_id == run_id; }
    /// Returns the highest epoch in fg:node.
    epoch claimed_epoch() const { return std::max(admitted_epoch, floor_epoch); }
};

/// Returns why this server cannot be a node with its present settings, and what to change; empty if it can.
std::string find_misconfiguration(const node_facts& facts);

/// Returns why a node with this claim belongs to another cell than `own`, and what to do; empty if it does not, or has
/// no claim.
std::string find_other_cell(std::string_view claim, cell_id own);

/// Returns why a node with this epoch in fg:node cannot be one of this cluster, and what to look at; empty if it can.
std::string find_implausible_epoch(epoch claimed, epoch highest_plausible);

/// The state machine that decides whether a node may vote (docs/protocol.md R8–R10).
///
/// The driver reports what happened by calls named in the past tense; each returns the next action, with the delay
/// before it. The machine has no clock: times are arguments.
///
/// Threads: not safe.
class node_supervisor {
  public:
    enum class action {
        connect,           ///< Open a new connection.
        identify,          ///< Read node_facts, and write a claim into fg:node if there is none.
        find_record,       ///< Read what the register knows of the node.
        draw_epoch,        ///< Draw an epoch from the register for life().
        note_unsynced,     ///< Have the register record that the node's data may be incomplete after a restart.
        delete_admission,  ///< Delete the run id, the claim and the mark from fg:node.
        copy_leases,       ///< Copy the leases of the other nodes to this one (FAST READMISSION).
        readmit,           ///< Run READMIT with the run id, the drawn epoch, the marks and copy_mark().
        vote,              ///< Ask the node for leases until the next report.
    };
    struct step {
        action next = action::connect;
        milliseconds delay{0};
    };

    /// `leads`: false if another supervisor of this process copies the leases.
    explicit node_supervisor(milliseconds max_ttl, bool leads = false) : max_ttl_(max_ttl), leads_(leads) {}

    step connected();
    /// The connection failed or broke, or the node did not answer for too long.
    step disconnected(std::string reason);
    /// The node refused the credentials of a new connection, or the password can't be read; `reason` says which.
    step credentials_refused(std::string reason);
    step identified(node_facts facts, monotonic_time now);
    step record_found(node_record record, monotonic_time now);
    step epoch_drawn(epoch drawn);
    step unsynced_noted();
    /// The register could not be reached, or it refused the call.
    step register_failed(std::string reason);
    /// The node has the leases that the others hold; `mark`: the mark for which they were installed.
    step leases_copied(std::string mark, monotonic_time now);
    /// `reason`: empty if nothing failed but the node changed meanwhile (fast_readmission::finished_function).
    step copying_failed(std::string reason, monotonic_time now);
    /// The leases can't be copied, because fewer other nodes vote than must be read.
    step too_few_to_copy_from(monotonic_time now);
    /// The admission was deleted; or the node refused that with the error `refusal`.
    step admission_deleted(std::string refusal);
    /// The node refused to run READMIT (rights, memory, …). READMIT is repeated later with the same epoch.
    step readmit_refused(std::string reason);
    /// READMIT answered OK or ALREADY (`admitted`), or GONE.
    step readmit_answered(bool admitted);
    /// A script answered UNINIT: the node is not admitted, or its marks have changed.
    step found_not_admitted();
    /// A script, or a command of the identification, was refused with another error (out of memory, read-only, no
    /// permission, loading, …). The node does not vote until it is identified again.
    step commands_refused(std::string reason);
    /// The node has this floor now (STORAGE GENERATION).
    void floor_seen(epoch floor) { facts_.floor_epoch = floor; }

    node_state state() const { return state_; }
    const std::string& detail() const { return detail_; }
    const node_facts& facts() const { return facts_; }
    epoch admitted_epoch() const { return epoch_; }
    milliseconds quarantine_left(monotonic_time now) const;
    /// Returns the epoch for READMIT.
    epoch drawn() const { return this_life_.drawn.value_or(epoch{}); }
    /// Returns the mark that READMIT requires; empty: none.
    std::string copy_mark() const { return this_life_.copy_mark.value_or(std::string()); }
    /// Returns the life of the node. Process and data must be the same at the draw of an epoch and at READMIT.
    std::string life() const {
        return facts_.run_id + '/' + facts_.claim + '/' + facts_.marks.lost + '/' + facts_.marks.evicted;
    }

    /// The time after which a node that does not vote is identified again.
    static constexpr milliseconds recheck_delay{500};
    /// That time for a state that soon passes by itself: the node loads its data, or another gateway or thread may have
    /// admitted it.
    static constexpr milliseconds recheck_soon_delay{100};
    /// The time after which the leases are copied again if that failed.
    static constexpr milliseconds copy_again_delay{2'000};
    static constexpr milliseconds reconnect_min{50}, reconnect_max{1'000};

  private:
    /// What is known of the life() of a node that does not vote. Nothing of it is true of another life.
    struct of_this_life {
        std::optional<monotonic_time> first_seen_at;  ///< When it was first found to be not admitted.
        std::optional<node_record> record;            ///< What the register knows of the node.
        std::optional<epoch> looked_up_epoch;         ///< The implausible epoch for which the register was asked.
        std::optional<epoch> drawn;                   ///< The epoch that was drawn for it.
        bool drawn_synced = false;                    ///< The node synced every write at that draw.
        std::optional<std::string> copy_mark;         ///< The mark for which leases were copied to it.
    };

    void set(node_state state, std::string detail);
    /// Takes what was read from the node, and forgets what was known of another life.
    void replace_facts(node_facts facts);
    step refuse(std::string reason);
    /// Refuses a node with an implausible epoch, unless the register says that it drew that epoch.
    step refuse_implausible();
    /// Returns why an admitted node may have forgotten leases since its admission; empty if it has not.
    std::string find_data_loss() const;
    /// Decides about an admitted node.
    step review();
    /// Decides about a node of which the register's record is known.
    step quarantine_or_draw(monotonic_time now);
    /// Returns whether the node may have forgotten leases that have not expired yet, by record and facts.
    bool may_lack_leases() const;
    step quarantine(monotonic_time now);
    /// Returns when all leases are over that the node may have forgotten: they were granted before it was first seen.
    monotonic_time quarantine_end() const;
    std::string describe_quarantine() const;

    milliseconds max_ttl_;
    bool leads_;
    node_state state_ = node_state::unreachable;
    std::string detail_ = "not connected yet";
    node_facts facts_;
    of_this_life this_life_;
    bool may_have_lost_data_ = false;  ///< In this life or one before, and the register has not recorded it yet.
    bool losses_recorded_ = false;     ///< The register has recorded what this process may have lost until now.
    epoch epoch_{};
    monotonic_time copy_again_at_{};
    std::string last_copy_failure_;  ///< Why the leases are not copied yet; empty: nothing failed.
    milliseconds reconnect_delay_ = reconnect_min;
};

}  // namespace lockcore
