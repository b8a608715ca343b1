#pragma once

#include <proto/admission.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <vector>

namespace lockcore {

/// Sends the commands of one core to one node, those of one flush together, and answers every command within
/// `node_timeout`. It sends commands only while the node votes, and a command made for one run id is never sent on
/// another connection (docs/protocol.md R9).
///
/// Threads: not safe.
/// Limits:  `node_queue_max` commands without an answer; batch_max commands in one script call.
class node_link final : private node_transport {
  public:
    /// The largest number of commands in one script call, which blocks the node for about 0.2 ms.
    static constexpr std::size_t batch_max = 32;

    node_link(core_context& ctx, node_index index, const cluster_view& others, bool leads);

    void start() { admission_.start(); }
    void stop();

    /// Queues a command, which is sent at the next flush.
    ///
    /// Out: `ok` if it was queued: on_reply gets its answer. Any other value is the answer: the command is not sent.
    reply_status send(command_kind kind, std::shared_ptr<reply_target> target, fencing_token token);

    void flush();
    void tick();
    void connected(const input::connected& what);
    void disconnected(const input::disconnected& what);
    void batch_answered(input::batch_answered what);
    void node_answered(input::node_answered what);

    /// Asks the node something beside the commands about leases.
    void ask(node_request::any request, std::function<void(node_response::any)> then) override;

    bool is_voting() const { return admission_.is_voting(); }
    const std::string& run_id() const { return admission_.run_id(); }
    bool is_identified() const { return admission_.is_identified(); }
    epoch base_epoch() const { return admission_.base_epoch(); }
    epoch observed_epoch() const { return admission_.observed_epoch(); }
    epoch claimed_epoch() const { return admission_.claimed_epoch(); }
    epoch highest_plausible_epoch() const { return admission_.highest_plausible_epoch(); }
    epoch floor_epoch() const { return admission_.floor_epoch(); }
    void floor_seen(epoch floor) { admission_.floor_seen(floor); }
    const std::string& name() const { return admission_.name(); }
    node_status status() const { return admission_.status(); }

  private:
    /// The commands of one script call.
    struct batch {
        request_number number{};
        command_kind kind{};
        std::vector<batch_item> items;
        monotonic_time sent_at;
        std::uint64_t sent_in_tick = 0;
        bool with_source = false;
        bool overdue = false;  ///< Its commands have been answered with `timeout`.
    };

    bool is_open() const override { return open_; }
    void open() override;
    void drop(const std::string& reason) override;

    void lost(const std::string& reason, bool refused = false);
    void submit(std::shared_ptr<batch> b);
    void answer_all(const batch& b, reply_status status);
    /// Returns the time since the batch was sent, in whole ticks, rounded down.
    milliseconds unanswered_time(const batch& b) const;
    void no_longer_waits_for(const batch& b);

    core_context& ctx_;
    node_index index_;
    admission admission_;
    connection_number connection_{};
    bool open_ = false;
    std::deque<std::function<void(node_response::any)>> asked_;  ///< In the order of sending.
    std::array<std::vector<batch_item>, command_kinds> queued_;  ///< By command_kind.
    std::size_t unanswered_ = 0;
    std::uint64_t ticks_ = 0;
    std::deque<std::shared_ptr<batch>> in_flight_;  ///< In the order of sending.
};

}  // namespace lockcore
