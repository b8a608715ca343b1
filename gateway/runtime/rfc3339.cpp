#include <gateway/runtime/rfc3339.hpp>

#include <array>
#include <cstdio>

namespace fencegate::runtime {
namespace {

using std::chrono::system_clock;

struct civil_time {
    std::chrono::year_month_day date;
    std::chrono::hh_mm_ss<std::chrono::milliseconds> time;
    unsigned weekday = 0;  ///< 0 = Sunday
};

civil_time to_civil(system_clock::time_point at) {
    const auto ms = std::chrono::floor<std::chrono::milliseconds>(at);
    const auto day = std::chrono::floor<std::chrono::days>(ms);
    return {std::chrono::year_month_day(day), std::chrono::hh_mm_ss<std::chrono::milliseconds>(ms - day),
            std::chrono::weekday(day).c_encoding()};
}

/// Reads fixed formats from the front of a text.
class cursor {
  public:
    explicit cursor(std::string_view text) : rest_(text) {}

    /// Reads exactly `count` digits; -1 if they are not there.
    int digits(std::size_t count) {
        if (rest_.size() < count) return -1;
        int value = 0;
        for (std::size_t i = 0; i < count; ++i) {
            if (rest_[i] < '0' || rest_[i] > '9') return -1;
            value = value * 10 + (rest_[i] - '0');
        }
        rest_.remove_prefix(count);
        return value;
    }
    bool skip(char c) {
        if (rest_.empty() || rest_.front() != c) return false;
        rest_.remove_prefix(1);
        return true;
    }
    /// Reads `.` and one to nine digits as nanoseconds; 0 if there is no point, -1 if it is malformed.
    int fraction() {
        if (!skip('.')) return 0;
        int value = 0;
        int count = 0;
        for (; !rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9'; ++count) {
            if (count == 9) return -1;
            value = value * 10 + (rest_.front() - '0');
            rest_.remove_prefix(1);
        }
        if (count == 0) return -1;
        for (; count < 9; ++count)
            value *= 10;
        return value;
    }
    bool at_end() const { return rest_.empty(); }

  private:
    std::string_view rest_;
};

std::optional<std::chrono::minutes> parse_offset(cursor& input) {
    if (input.skip('Z') || input.skip('z')) return std::chrono::minutes(0);
    const bool east = input.skip('+');
    if (!east && !input.skip('-')) return std::nullopt;
    const int hours = input.digits(2);
    if (hours < 0 || hours > 23 || !input.skip(':')) return std::nullopt;
    const int minutes = input.digits(2);
    if (minutes < 0 || minutes > 59) return std::nullopt;
    const std::chrono::minutes offset(hours * 60 + minutes);
    return east ? offset : -offset;
}

}  // namespace

std::string to_rfc3339(system_clock::time_point at) {
    const civil_time c = to_civil(at);
    std::array<char, 40> out;
    const int size =
        std::snprintf(out.data(), out.size(), "%04d-%02u-%02uT%02d:%02d:%02d.%03dZ", static_cast<int>(c.date.year()),
                      static_cast<unsigned>(c.date.month()), static_cast<unsigned>(c.date.day()),
                      static_cast<int>(c.time.hours().count()), static_cast<int>(c.time.minutes().count()),
                      static_cast<int>(c.time.seconds().count()), static_cast<int>(c.time.subseconds().count()));
    return {out.data(), static_cast<std::size_t>(size)};
}

std::optional<system_clock::time_point> parse_rfc3339(std::string_view text) {
    cursor input(text);
    const int year = input.digits(4);
    if (year < 0 || !input.skip('-')) return std::nullopt;
    const int month = input.digits(2);
    if (month < 0 || !input.skip('-')) return std::nullopt;
    const int day = input.digits(2);
    if (day < 0 || !(input.skip('T') || input.skip('t'))) return std::nullopt;
    const int hour = input.digits(2);
    if (hour < 0 || hour > 23 || !input.skip(':')) return std::nullopt;
    const int minute = input.digits(2);
    if (minute < 0 || minute > 59 || !input.skip(':')) return std::nullopt;
    const int second = input.digits(2);
    if (second < 0 || second > 59) return std::nullopt;
    const int nanoseconds = input.fraction();
    if (nanoseconds < 0) return std::nullopt;
    const auto offset = parse_offset(input);
    if (!offset || !input.at_end()) return std::nullopt;

    const std::chrono::year_month_day date(std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                           std::chrono::day(static_cast<unsigned>(day)));
    // A 64-bit count of nanoseconds covers the years 1677 to 2262.
    if (!date.ok() || year < 1678 || year > 2261) return std::nullopt;
    return system_clock::time_point(std::chrono::sys_days(date)) + std::chrono::hours(hour) +
           std::chrono::minutes(minute) + std::chrono::seconds(second) + std::chrono::nanoseconds(nanoseconds) -
           *offset;
}

std::string to_http_date(system_clock::time_point at) {
    static constexpr std::array<const char*, 7> weekdays{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static constexpr std::array<const char*, 12> months{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    const civil_time c = to_civil(at);
    std::array<char, 48> out;
    const int size =
        std::snprintf(out.data(), out.size(), "%s, %02u %s %04d %02d:%02d:%02d GMT", weekdays.at(c.weekday),
                      static_cast<unsigned>(c.date.day()), months.at(static_cast<unsigned>(c.date.month()) - 1),
                      static_cast<int>(c.date.year()), static_cast<int>(c.time.hours().count()),
                      static_cast<int>(c.time.minutes().count()), static_cast<int>(c.time.seconds().count()));
    return {out.data(), static_cast<std::size_t>(size)};
}

}  // namespace fencegate::runtime
