#pragma once

#include <lockcore/lease.hpp>
#include <lockcore/nodes.hpp>
#include <lockcore/types.hpp>

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace fencegate::audit {

/// What a driver of generation_steps does next. It passes the result to the function that is named here.
namespace generation_step {
/// Reads PostgreSQL's generation → on_state().
struct find_state {};
/// Begins a change of the generation in PostgreSQL, which draws the new floor above `seen` → on_begun().
struct begin_change {
    lockcore::epoch seen{};  ///< The highest epoch that a node was seen with.
};
/// Writes the floor to the nodes → on_announced().
struct announce {
    lockcore::storage_floor floor;
};
/// Finds the writes that this gateway acknowledged and that are gone, and stores them for report_lost() →
/// on_lost_writes().
struct find_lost_writes {};
/// Makes the change of the generation valid → on_finished().
struct finish_change {
    std::string change_id;
};
/// Waits → look().
struct wait {
    bool briefly = false;  ///< Not as long as usual, because something is unfinished.
};
using any = std::variant<find_state, begin_change, announce, find_lost_writes, finish_change, wait>;
}  // namespace generation_step

/// What a gateway does about the storage generation, in which order, without clock, PostgreSQL or nodes of its own:
/// storage_watch drives it in a gateway, and tests/sim in its simulated clusters.
///
/// Threads: one.
/// Source:  docs/protocol.md, STORAGE GENERATION.
class generation_steps {
  public:
    /// What the decisions use and cause at once, without a step of the driver.
    class ports {
      public:
        virtual ~ports() = default;
        virtual std::vector<lockcore::node_status> nodes() const = 0;
        /// As lock_manager::raise_hints.
        virtual void raise_hints(lockcore::epoch floor) = 0;
        /// Replaces every connection to PostgreSQL before its next use.
        virtual void renew_connections() = 0;
        /// Refuses connections to a server with a lower floor, and those to any server that were made before.
        virtual void require_floor(lockcore::epoch floor) = 0;
        /// Reports the lost writes that were found since the last call. `record`: adds them to the history too; false
        /// after a change by this gateway, whose own row of the history has them.
        virtual void report_lost(bool record) = 0;
        enum class notice {
            generation_changed,  ///< Nothing is let in from now on.
            waits_for_nodes,     ///< A majority of the nodes does not vote.
            change_finished,     ///< By this gateway.
            replaced,            ///< The nodes know of a newer generation than PostgreSQL.
            no_longer_replaced,
        };
        virtual void report(notice what) = 0;
    };
    /// What PostgreSQL answered about its generation.
    struct state {
        bool current = false;
        lockcore::epoch floor{};
    };

    /// `lookups`: how often, at least twice, the acknowledged writes are looked for after a change or the start. While
    /// a request can last, a connection to the replaced server may acknowledge a write that was under way there.
    generation_steps(ports& p, int lookups) : ports_(p), lookups_(lookups) {}

    generation_step::any look() const { return generation_step::find_state{}; }
    /// Compares the generation. `found`: empty if PostgreSQL did not answer.
    generation_step::any on_state(const std::optional<state>& found);
    /// `begun`: empty if the change could not begin, or another gateway has made it meanwhile.
    generation_step::any on_begun(std::optional<lockcore::storage_floor> begun);
    /// `announced`: empty if there was no answer.
    generation_step::any on_announced(const std::optional<lockcore::floor_announcement>& announced);
    /// `answered`: false if PostgreSQL could not be asked.
    generation_step::any on_lost_writes(bool answered);
    /// `finished`: false if PostgreSQL did not answer, or another change was begun since.
    generation_step::any on_finished(bool finished);

    /// Returns whether PostgreSQL accepts guarded writes, as far as is known.
    bool is_current() const { return current_ && !replaced_; }
    /// Returns the number of changes that were seen. Each counts when lost writes were looked for twice after it.
    std::uint64_t changes() const { return changes_; }
    /// Returns whether nothing is left to do but to look again.
    bool is_settled() const { return is_current() && floor_known_ && lookups_left_ == 0; }

  private:
    /// Sets replaced_: whether a majority of the nodes knows of a change that this PostgreSQL does not. A minority may
    /// know of one that was never finished.
    void compare_with_nodes();

    ports& ports_;
    const int lookups_;
    bool current_ = true;      ///< PostgreSQL has the generation of the fences.
    bool replaced_ = false;    ///< A majority of the nodes knows of a newer one.
    lockcore::epoch floor_{};  ///< The highest floor of PostgreSQL that was seen.
    bool floor_known_ = false;
    int lookups_left_ = 0;        ///< How often the acknowledged writes are still to be looked up.
    bool counts_change_ = false;  ///< They are looked up because of a change, not of the start.
    std::uint64_t changes_ = 0;

    // Of the change that is under way.
    lockcore::epoch seen_{};  ///< As begin_change::seen.
    lockcore::storage_floor floor_to_set_;
    bool every_node_had_it_ = false;  ///< At the first announcement, although no majority of them was admitted.
    bool finish_is_next_ = false;     ///< The lost writes are looked up for the row of the change.
    bool waits_for_nodes_ = false;    ///< That is reported.
};

}  // namespace fencegate::audit
