#include <proto/command.hpp>

#include <charconv>

namespace lockcore {
namespace {

/// Reads numbers off the front of a reply, a space between each.
class number_reader {
  public:
    explicit number_reader(std::string_view text) : left_(text) {}

    /// 0 where there is none; then failed() is true.
    std::int64_t next() {
        if (left_.starts_with(' ')) left_.remove_prefix(1);
        std::int64_t n = 0;
        const auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), n);
        failed_ = failed_ || error != std::errc{};
        left_.remove_prefix(static_cast<std::size_t>(end - left_.data()));
        return n;
    }
    /// A number that is not negative.
    std::uint64_t count() {
        const std::int64_t n = next();
        failed_ = failed_ || n < 0;
        return static_cast<std::uint64_t>(n);
    }
    bool ended() const { return left_.empty(); }
    bool failed() const { return failed_; }
    /// That nothing is left.
    void end() { failed_ = failed_ || !left_.empty(); }
    /// All behind the space that follows.
    std::string_view take_rest() {
        const std::string_view rest = left_.substr(left_.empty() ? 0 : 1);
        left_ = {};
        return rest;
    }

  private:
    std::string_view left_;
    bool failed_ = false;
};

void parse_ok(node_reply& out, command_kind kind, number_reader& numbers) {
    switch (kind) {
        case command_kind::acquire:
            out.value = numbers.count();
            if (!numbers.ended()) out.took_over = numbers.count() == 1;
            break;
        case command_kind::top_up:
            out.value = numbers.count();
            break;
        case command_kind::inspect:
            out.remaining = milliseconds{numbers.next()};
            out.value = numbers.count();
            out.ttl = milliseconds{numbers.next()};
            out.text = numbers.take_rest();
            break;
        case command_kind::renew:
        case command_kind::hold:
            out.value = numbers.count();
            out.held = milliseconds{numbers.next()};
            out.text = numbers.take_rest();
            break;
        case command_kind::release:
        case command_kind::undo:
            out.told = static_cast<std::uint32_t>(numbers.count());
            out.text = numbers.take_rest();
            break;
        case command_kind::close:
            out.text = numbers.take_rest();
            break;
        case command_kind::look:
            out.remaining = milliseconds{numbers.next()};
            out.text = numbers.take_rest();
            break;
        case command_kind::list:
            out.text = numbers.take_rest();
            break;
        case command_kind::confirm:
            break;
    }
}

}  // namespace

node_reply parse_reply(command_kind kind, std::string_view text) {
    number_reader numbers(text);
    node_reply out, not_understood;
    not_understood.status = reply_status::error;
    const auto status = numbers.count();
    if (numbers.failed() || status >= script_statuses) return not_understood;
    out.status = static_cast<reply_status>(status);
    switch (out.status) {
        case reply_status::ok:
            parse_ok(out, kind, numbers);
            break;
        case reply_status::held:
            if (numbers.ended()) break;  // TOP-UP says no more
            out.remaining = milliseconds{numbers.next()};
            out.value = numbers.count();
            break;
        case reply_status::stale:
        case reply_status::exhausted:
            out.value = numbers.count();
            break;
        case reply_status::own:
            out.remaining = milliseconds{numbers.next()};
            out.text = numbers.take_rest();
            break;
        case reply_status::kept:
            out.text = numbers.take_rest();
            break;
        default:
            break;
    }
    numbers.end();
    return numbers.failed() ? not_understood : out;
}

}  // namespace lockcore
