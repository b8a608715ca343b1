#include <proto/command.hpp>

#include <lockcore/config.hpp>
#include <proto/lease_record.hpp>

#include <charconv>

namespace lockcore {
namespace {

/// Reads the numbers at the beginning of a reply, separated by one space.
class number_reader {
  public:
    explicit number_reader(std::string_view text) : left_(text) {}

    /// Reads the next number. Returns 0 if there is none; failed() is then true.
    std::int64_t next() {
        if (left_.starts_with(' ')) left_.remove_prefix(1);
        std::int64_t n = 0;
        const auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), n);
        failed_ = failed_ || error != std::errc{};
        left_.remove_prefix(static_cast<std::size_t>(end - left_.data()));
        return n;
    }
    /// Reads the next number, which must not be negative.
    std::uint64_t count() {
        const std::int64_t n = next();
        failed_ = failed_ || n < 0;
        return static_cast<std::uint64_t>(n);
    }
    milliseconds time() { return limit_foreign_time(next()); }
    bool at_end() const { return left_.empty(); }
    bool failed() const { return failed_; }
    /// Requires that the text is used up.
    void require_end() { failed_ = failed_ || !left_.empty(); }
    /// Returns the rest of the text after the next space.
    std::string_view take_rest() {
        const std::string_view rest = left_.substr(left_.empty() ? 0 : 1);
        left_ = {};
        return rest;
    }

  private:
    std::string_view left_;
    bool failed_ = false;
};

/// Returns false for a number that the script does not answer.
bool parse_ok(node_reply& out, command_kind kind, number_reader& numbers) {
    switch (kind) {
        case command_kind::acquire:
            out.value = numbers.count();
            if (!numbers.at_end()) out.took_over = numbers.count() == 1;
            return out.value > 0;
        case command_kind::top_up: {
            out.value = numbers.count();
            const std::uint64_t counts = numbers.count();
            out.counts = counts == 1;
            return counts <= 1;
        }
        case command_kind::inspect:
            out.remaining = numbers.time();
            out.value = numbers.count();
            out.ttl = numbers.time();
            out.text = numbers.take_rest();
            return out.value <= renewals_counted;
        case command_kind::renew:
        case command_kind::hold:
            out.value = numbers.count();
            out.held = numbers.time();
            out.text = numbers.take_rest();
            return out.value <= renewals_counted;
        case command_kind::release:
        case command_kind::undo:
            out.notified_waiters = static_cast<std::uint32_t>(numbers.count());
            out.text = numbers.take_rest();
            break;
        case command_kind::close:
            out.text = numbers.take_rest();
            break;
        case command_kind::look:
            out.remaining = numbers.time();
            out.text = numbers.take_rest();
            break;
        case command_kind::list:
            out.text = numbers.take_rest();
            break;
        case command_kind::confirm:
            break;
    }
    return true;
}

/// Returns whether a node may answer that it has the lease, but that it does not count.
bool may_have_stamp(command_kind kind) {
    return kind == command_kind::renew || kind == command_kind::hold || kind == command_kind::inspect;
}

}  // namespace

node_reply parse_reply(command_kind kind, std::string_view text) {
    number_reader numbers(text);
    node_reply out, invalid;
    invalid.status = reply_status::error;
    const auto status = numbers.count();
    if (numbers.failed() || status >= script_statuses) return invalid;
    out.status = static_cast<reply_status>(status);
    switch (out.status) {
        case reply_status::ok:
            if (!parse_ok(out, kind, numbers)) return invalid;
            break;
        case reply_status::held:
            if (numbers.at_end()) break;  // TOP-UP replies no more
            out.remaining = numbers.time();
            out.value = numbers.count();
            break;
        case reply_status::lost:
            if (numbers.at_end() || !may_have_stamp(kind)) break;
            out.value = numbers.count();
            out.has_stamp = true;
            break;
        case reply_status::stale:
        case reply_status::exhausted:
            out.value = numbers.count();
            break;
        case reply_status::own:
            out.remaining = numbers.time();
            out.text = numbers.take_rest();
            break;
        case reply_status::other_holds:
            out.text = numbers.take_rest();
            break;
        default:
            break;
    }
    numbers.require_end();
    return numbers.failed() ? invalid : out;
}

}  // namespace lockcore
