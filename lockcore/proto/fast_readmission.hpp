#pragma once

#include <proto/core_context.hpp>
#include <proto/lease_merge.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockcore {

/// Copies to one node, which may have forgotten leases, what the voting nodes hold, so that it need not wait until all
/// leases have expired (docs/protocol.md, FAST READMISSION 2–6).
///
/// Threads:  not safe.
/// Lifetime: by shared_ptr; to drop it ends the copying, and `finished` is not called.
/// Limits:   lease_merge::bytes_max; nodes that answer no request for node_dead_after.
class fast_readmission : public std::enable_shared_from_this<fast_readmission> {
  public:
    using ask_function = std::function<void(node_request::any, std::function<void(node_response::any)>)>;
    struct source {
        std::string run_id;
        ask_function ask;
    };
    /// Gets the mark that READMIT requires, or why the leases could not be copied: an empty text if the node was
    /// restarted or admitted, or its data or settings changed.
    using finished_function = std::function<void(result<std::string>)>;

    /// In: `ask_node`: asks the node that forgot, whose live process is `run_id`. `sources`: other voting nodes, of
    ///     which every majority with it includes one. `highest`: the highest epoch of a token that may have been granted.
    ///     `own_mark`: the mark that this gateway set before.
    fast_readmission(core_context& ctx, std::string run_id, ask_function ask_node, std::vector<source> sources,
                     epoch highest, std::string own_mark, finished_function finished);
    ~fast_readmission();
    fast_readmission(const fast_readmission&) = delete;
    fast_readmission& operator=(const fast_readmission&) = delete;

    void start();
    /// Returns the mark of the node's life if this gateway set it; empty otherwise.
    const std::string& own_mark() const { return own_mark_; }

    /// The leases of one request: a node reads or writes so many in less than a millisecond.
    static constexpr std::size_t page_size = 100;
    /// The requests to install that may be unanswered. A node that syncs every write then syncs once for several of them.
    static constexpr std::size_t installs_max = 8;
    /// How much longer this gateway waits if another one set the mark and copies the leases already.
    static constexpr milliseconds other_gateway_timeout{1'000};
    /// How often it looks meanwhile whether the node is admitted.
    static constexpr milliseconds recheck_interval{100};

  private:
    void marked(const node_response::text& answer, const std::string& digits);
    /// Remembers the mark if this gateway has just set it, with these digits.
    void note_if_own(const std::string& mark, const std::string& digits);
    void await_other_gateway(monotonic_time until);
    void read_all();
    void read_page(std::size_t from, std::string base, const std::string& cursor);
    void page_read(std::size_t from, node_response::lease_page page);
    void install_more();
    void finish(result<std::string> outcome);
    void fail(std::string reason);
    /// Calls the function with the answer, unless this was dropped or has finished.
    template <class Response>
    void ask(const ask_function& node, node_request::any request,
             std::function<void(fast_readmission&, Response)> then);
    void set_deadline();
    void wait(milliseconds delay, std::function<void()> then);

    core_context& ctx_;
    std::string run_id_;
    ask_function ask_node_;
    std::vector<source> sources_;
    finished_function finished_;
    std::string own_mark_, mark_;
    lease_merge leases_;
    std::size_t reading_ = 0;     ///< Sources that are not read to the end.
    std::size_t installing_ = 0;  ///< Requests to install that are unanswered.
    timer_list::handle timer_;
};

}  // namespace lockcore
