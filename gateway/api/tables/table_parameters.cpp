#include <gateway/api/tables/table_parameters.hpp>

#include <gateway/api/tables/table_grammar.hpp>
#include <gateway/http/codec/query.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

namespace fencegate::api {
namespace {

constexpr const char* embedding_refused = "has embedded tables, but embedding is for reads of tables";

/// Gives the embedded tables their parameters' prefix and their limit.
void prepare_embedded(std::vector<selected_column>& select, const std::string& prefix, std::int64_t rows_max) {
    for (auto& item : select) {
        if (!item.embedded) continue;
        item.embedded->pointer_prefix = prefix + item.alias + ".";
        item.embedded->rows.limit = rows_max;
        prepare_embedded(item.embedded->rows.select, item.embedded->pointer_prefix, rows_max);
    }
}

/// Reads the parameters of one query string, select first, because the names of others may begin with a name of it.
class parameter_reader {
  public:
    explicit parameter_reader(std::size_t rows_max) : rows_max_(static_cast<std::int64_t>(rows_max)) {
        out_.rows.limit = rows_max_;
    }

    void read(const std::string& name, const std::string& value, http::fault_list& faults) {
        const auto [rows, prefix] = selection_of(name);
        const auto part = std::string_view(name).substr(prefix);
        if (!is_reserved(part, prefix > 0)) {
            auto condition = parse_condition(name, value, faults, prefix);
            if (condition.pointer.empty()) return;  // a fault
            count(name, condition, faults);
            rows->where.push_back(std::move(condition));
        } else if (!out_.given.insert(name).second) {
            faults.add(name, "is given more than once");
        } else if (part == "select") {
            rows->select = parse_select(value, faults);
            prepare_embedded(rows->select, "", rows_max_);
        } else if (part == "order") {
            rows->order = parse_order(name, value, faults);
        } else if (part == "limit") {
            rows->limit = std::min(parse_count(name, value, faults).value_or(rows_max_), rows_max_);
        } else if (part == "offset") {
            rows->offset = parse_count(name, value, faults).value_or(0);
        } else {
            (part == "columns" ? out_.columns : out_.on_conflict) = parse_names(name, value, faults);
        }
    }

    table_parameters take() { return std::move(out_); }

  private:
    static bool is_reserved(std::string_view name, bool embedded) {
        constexpr std::string_view words[] = {"order", "limit", "offset"};
        constexpr std::string_view outer[] = {"select", "on_conflict", "columns"};
        return std::ranges::find(words, name) != std::end(words) ||
               (!embedded && std::ranges::find(outer, name) != std::end(outer));
    }

    static std::optional<std::int64_t> parse_count(const std::string& name, const std::string& text,
                                                   http::fault_list& faults) {
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error == std::errc{} && end == text.data() + text.size() && value >= 0) return value;
        faults.add(name, "has to be an integer from 0 to 9223372036854775807");
        return std::nullopt;
    }

    /// Returns the selection that a parameter concerns, and where the rest of its name begins.
    std::pair<row_selection*, std::size_t> selection_of(std::string_view name) {
        auto* rows = &out_.rows;
        std::size_t begin = 0;
        while (true) {
            const auto dot = name.find('.', begin);
            if (dot == std::string_view::npos) return {rows, begin};
            const auto segment = name.substr(begin, dot - begin);
            const auto found = std::ranges::find_if(
                rows->select, [&](const auto& item) { return item.embedded && item.alias == segment; });
            if (found == rows->select.end()) return {rows, begin};
            rows = &found->embedded->rows;
            begin = dot + 1;
        }
    }

    void count(const std::string& name, const comparison& condition, http::fault_list& faults) {
        const auto before = std::exchange(conditions_, conditions_ + count_conditions(condition));
        if (before <= conditions_max && conditions_ > conditions_max)
            faults.add("query", "has more than 256 conditions");
        const auto bytes = std::exchange(pattern_bytes_, pattern_bytes_ + count_pattern_bytes(condition));
        if (bytes <= pattern_bytes_max && pattern_bytes_ > pattern_bytes_max)
            faults.add(name, "like and ilike accept patterns of at most 512 bytes in all");
    }

    table_parameters out_;
    std::int64_t rows_max_;
    std::size_t conditions_ = 0;
    std::size_t pattern_bytes_ = 0;
};

using named_text = std::pair<std::string, std::string>;

/// Returns the parameters, those named select before all others.
std::vector<named_text> sorted_parameters(const http::request& r, http::fault_list& faults) {
    auto out = http::query_parameters(r.query, faults);
    std::stable_partition(out.begin(), out.end(), [](const auto& given) { return given.first == "select"; });
    return out;
}

}  // namespace

table_parameters parse_parameters(const http::request& r, std::size_t rows_max, http::fault_list& faults) {
    parameter_reader reader(rows_max);
    for (const auto& [name, value] : sorted_parameters(r, faults))
        reader.read(name, value, faults);
    return reader.take();
}

void parse_function_parameters(const http::request& r, std::size_t rows_max, function_query& out,
                               http::fault_list& faults) {
    parameter_reader reader(rows_max);
    for (const auto& [name, value] : sorted_parameters(r, faults)) {
        http::fault_list own;
        reader.read(name, value, own);
        const auto repeated = std::ranges::find(out.parameters, name, &query_argument::name);
        query_argument given{name, value};
        if (!own.empty()) given.fault = std::move(own).to_failure().errors.front().detail;
        if (repeated != out.parameters.end() && (given.fault || repeated->fault))
            faults.add(name, "is given more than once");
        out.parameters.push_back(std::move(given));
    }
    auto parsed = reader.take();
    for (auto& given : out.parameters) {
        if (given.name == "on_conflict" || given.name == "columns") given.fault = "is not a parameter of this method";
        if (given.name == "select" && !embedded_names(parsed.rows.select).empty()) given.fault = embedding_refused;
    }
    out.rows = std::move(parsed.rows);
}

void refuse_parameters(const table_parameters& given, std::initializer_list<const char*> names,
                       http::fault_list& faults) {
    for (const char* name : names) {
        if (given.given.contains(name)) faults.add(name, "is not a parameter of this method");
    }
}

void refuse_embedding(const row_selection& rows, http::fault_list& faults) {
    if (!embedded_names(rows.select).empty()) faults.add("select", embedding_refused);
}

std::vector<std::string> embedded_names(const std::vector<selected_column>& select) {
    std::vector<std::string> out;
    for (const auto& item : select) {
        if (!item.embedded) continue;
        out.push_back(item.column);
        for (auto& name : embedded_names(item.embedded->rows.select))
            out.push_back(std::move(name));
    }
    return out;
}

}  // namespace fencegate::api
