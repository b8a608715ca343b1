#pragma once

#include <gateway/domain/history_item.hpp>

#include <lockcore/types.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::api {

/// Appends an item in the JSON form of docs/http-api.md.
void append_history_item(std::string& text, const history_item& item);

/// The same for a changed row.
void append_history_item(std::string& text, const change_item& item);

/// The same for a digest.
void append_history_item(std::string& text, const digest_item& item);

/// Appends items as a JSON array.
void append_history_items(std::string& text, const std::vector<history_item>& items);

/// Returns the JSON of one page with its cursor, which names the cell.
std::string render_history(const history_page& page, bool ascending, lockcore::cell_id cell);
std::string render_history(const change_page& page, bool ascending, lockcore::cell_id cell);
std::string render_history(const digest_page& page, bool ascending, lockcore::cell_id cell);

/// Returns the header line of the CSV (RFC 4180), with its CRLF.
std::string_view history_csv_head();
std::string_view change_csv_head();
/// Appends an item as one CSV record with its CRLF.
void append_history_csv(std::string& text, const history_item& item);
void append_history_csv(std::string& text, const change_item& item);

/// Appends an item as an event of text/event-stream, with its id, which names the cell.
void append_history_event(std::string& text, const history_item& item, lockcore::cell_id cell);

/// Summarizes the history of one token of a resource: who held the lease, from when to when, how often it was renewed,
/// why it ended, and how many writes were applied and refused.
class lease_timeline {
  public:
    /// Maximum number of events that are listed, the oldest ones; further ones are only counted.
    static constexpr std::size_t shown_max = 1'000;

    /// Adds an event of the token; the caller adds them oldest first.
    void add(history_item item);
    bool empty() const { return shown_.empty(); }

    /// Returns the JSON of GET /v1/resources/{resource}?fencing_token=N.
    ///
    /// In: `live`: a majority of nodes holds the lease now. `whole`: every event was added.
    std::string render(std::string_view resource, std::uint64_t token, bool live, bool whole) const;

  private:
    std::string_view describe_end(bool live, bool whole) const;

    std::vector<history_item> shown_;
    std::optional<history_item> granted_, renewed_, ended_;  ///< The first grant and renewal, the last end.
    std::optional<std::chrono::system_clock::time_point> runs_until_;
    std::int64_t events_ = 0, renewals_ = 0, applied_ = 0, rejected_ = 0, failed_ = 0;
};

/// Renders the answer of GET /v1/history/summary.
std::string render_summary(const history_summary_query& query, const std::vector<history_count>& counts);

}  // namespace fencegate::api
