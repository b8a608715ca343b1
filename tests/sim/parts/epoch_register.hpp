#pragma once

#include <sim/parts/messages.hpp>

#include <array>
#include <vector>

namespace sim {

/// The durable register of epochs: PostgreSQL's fencing.draw_epoch. It may be out of reach, and its answer may be lost
/// after it has drawn; it never forgets.
class epoch_register {
  public:
    struct draw {
        std::uint32_t gateway = 0, node = 0, generation = 0;
        std::uint64_t seen = 0;
        bool drawn = false, first_admission = false;
        std::uint64_t epoch = 0;
    };

    explicit epoch_register(context& ctx) : ctx_(ctx) {}

    void ask(const draw& d) {
        draws_.push_back(d);
        const auto at = static_cast<std::uint32_t>(draws_.size() - 1);
        ctx_.events.in(trip(), {.kind = event_kind::draw_arrives, .a = at});
    }
    void arrives(std::uint32_t at) {
        draw& d = draws_[at];
        if (open_) {
            epoch_ = std::max(epoch_, d.seen) + 1;
            d.epoch = epoch_;
            d.first_admission = !known_[d.node];
            known_[d.node] = true;
            d.drawn = true;
            ctx_.note("epoch is drawn", d.gateway, d.node, d.epoch, d.first_admission);
            if (loses_answers_ && ctx_.chance.chance(150)) {
                d.drawn = false;
                ctx_.hit(probe::draw_answer_lost);
            }
        }
        if (!d.drawn) ctx_.hit(probe::draw_failed);
        ctx_.events.in(trip(), {.kind = event_kind::draw_answered, .a = at});
    }
    const draw& answered(std::uint32_t at) const { return draws_[at]; }

    void close() {
        open_ = false;
        loses_answers_ = true;
    }
    void open() { open_ = true; }
    void heal() {
        open_ = true;
        loses_answers_ = false;
    }

  private:
    microseconds trip() { return ctx_.set.delay_base + ctx_.chance.about(ctx_.set.delay_more * 4); }

    context& ctx_;
    bool open_ = true, loses_answers_ = false;
    std::uint64_t epoch_ = 0;
    std::array<bool, sim_nodes_max> known_{};
    std::vector<draw> draws_;
};

}  // namespace sim
