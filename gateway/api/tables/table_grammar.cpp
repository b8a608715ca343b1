#include <gateway/api/tables/table_grammar.hpp>

#include <gateway/api/writes/write_body.hpp>
#include <gateway/domain/table_read.hpp>
#include <gateway/http/codec/json_io.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>

namespace fencegate::api {
namespace {

constexpr std::size_t sort_keys_max = 64;
/// Maximum number of names in one list: as many as a table of PostgreSQL can have columns. Each is compared with those
/// before it.
constexpr std::size_t names_max = 1'600;
/// How often one list may name a column: a large value that is repeated in a row takes gigabytes of PostgreSQL's
/// memory.
constexpr std::ptrdiff_t column_repeats_max = 8;
/// Longest name of a column in an answer. PostgreSQL cuts longer ones, so that two could become one.
constexpr std::size_t answer_name_bytes_max = 63;

/// The exception for a faulty text. collect_fault catches it and adds the parameter's name.
struct grammar_fault {
    std::string detail;
};

/// Reads a parameter's value from left to right.
class scanner {
  public:
    explicit scanner(std::string_view text) : rest_(text) {}

    bool at_end() const { return rest_.empty(); }
    char next() const { return rest_.empty() ? '\0' : rest_.front(); }

    bool take(std::string_view expected) {
        if (!rest_.starts_with(expected)) return false;
        rest_.remove_prefix(expected.size());
        return true;
    }

    void expect(std::string_view expected) {
        if (!take(expected)) throw grammar_fault{"lacks " + std::string(expected) + " before '" + excerpt() + "'"};
    }

    std::string take_all() { return std::string(std::exchange(rest_, {})); }

    /// Returns the text up to the first of the characters `ends`, or all of it.
    std::string take_until(std::string_view ends) {
        const auto size = std::min(rest_.find_first_of(ends), rest_.size());
        std::string out(rest_.substr(0, size));
        rest_.remove_prefix(size);
        return out;
    }

    /// Returns the text inside `"…"`, where \ escapes the next character; without quotes as take_until.
    std::string take_text(std::string_view ends) {
        if (next() != '"') return take_until(ends);
        std::string out;
        for (std::size_t i = 1; i < rest_.size(); ++i) {
            if (rest_[i] == '"') {
                rest_.remove_prefix(i + 1);
                return out;
            }
            if (rest_[i] == '\\' && ++i == rest_.size()) break;
            out.push_back(rest_[i]);
        }
        throw grammar_fault{"has a quotation mark that is not closed"};
    }

    std::string take_name(std::string_view ends) {
        const bool quoted = next() == '"';
        auto out = take_text(ends);
        if (out.empty()) throw grammar_fault{"lacks a name before '" + excerpt() + "'"};
        if (!quoted && out.find("->") != std::string::npos)
            throw grammar_fault{"has a JSON path (" + out + "), which is not supported"};
        if (out.size() > name_bytes_max) {
            throw grammar_fault{"has a name of more than " + std::to_string(name_bytes_max) + " bytes before '" +
                                excerpt() + "'"};
        }
        return out;
    }

    void expect_end() const {
        if (!at_end()) throw grammar_fault{"has '" + excerpt() + "' after its end"};
    }

  private:
    std::string excerpt() const { return std::string(http::cut_utf8(rest_, 20)); }

    std::string_view rest_;
};

boost::json::value truth_value(const std::string& word) {
    if (word == "null") return nullptr;
    if (word == "true" || word == "false") return word == "true";
    if (word == "unknown") return boost::json::value(word);
    throw grammar_fault{"is takes null, true, false or unknown"};
}

boost::json::array read_list(scanner& text) {
    boost::json::array out;
    text.expect("(");
    if (text.take(")")) return out;
    do {
        if (out.size() == list_values_max) throw grammar_fault{"in takes at most 1000 values"};
        out.emplace_back(text.take_text(",)"));
    } while (text.take(","));
    text.expect(")");
    return out;
}

/// Returns the pattern with repeated wildcards removed: %% matches the same as %.
std::string collapse_wildcards(std::string_view pattern) {
    std::string out;
    bool after_wildcard = false;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        if (pattern[i] == '%' && after_wildcard) continue;
        after_wildcard = pattern[i] == '%';
        out.push_back(pattern[i]);
        if (pattern[i] == '\\' && i + 1 < pattern.size()) out.push_back(pattern[++i]);
    }
    return out;
}

/// Reads conditions. `in_group`: inside or() or and(), where a comma or a parenthesis ends a value.
class condition_reader {
  public:
    condition_reader(std::string_view parameter, scanner& text) : parameter_(parameter), text_(text) {}

    comparison predicate(std::string column, bool in_group) {
        auto out = empty();
        out.column = std::move(column);
        out.negated = text_.take("not.");
        const auto begin = text_;
        const auto word = text_.take_until(".,()");
        const auto known = find_operator(word);
        if (!known || !text_.take(".")) throw unknown_operator(begin);
        out.op = *known;
        if (out.op == comparison_operator::in) {
            out.value = read_list(text_);
            return out;
        }
        auto value = in_group ? text_.take_text(",)") : text_.take_all();
        if (out.op == comparison_operator::is) {
            out.value = truth_value(value);
            return out;
        }
        if (out.op == comparison_operator::like || out.op == comparison_operator::ilike) {
            std::ranges::replace(value, '*', '%');
            value = collapse_wildcards(value);
        }
        out.value = boost::json::value(value);
        return out;
    }

    comparison group(bool any, std::size_t depth) {
        if (depth > groups_depth_max) throw grammar_fault{"nests or() and and() deeper than 8 levels"};
        auto out = empty();
        out.op = any ? comparison_operator::any_of : comparison_operator::all_of;
        text_.expect("(");
        do {
            out.members.push_back(member(depth));
        } while (text_.take(","));
        text_.expect(")");
        return out;
    }

  private:
    static grammar_fault unknown_operator(scanner text) {
        const auto word = text.take_until(".");
        const auto what =
            text.at_end() ? std::string("has no operator") : "has the operator " + word + ", which is not supported";
        return {what + "; write it as eq.VALUE, with one of eq, neq, lt, lte, gt, gte, like, ilike, in and is"};
    }

    comparison empty() const {
        comparison out;
        out.pointer = parameter_;
        out.literal = true;
        return out;
    }

    comparison member(std::size_t depth) {
        if (++count_ > conditions_max) throw grammar_fault{"has more than 256 conditions"};
        for (const auto& [word, any, negated] :
             {std::tuple{"or", true, false}, std::tuple{"and", false, false}, std::tuple{"not.or", true, true},
              std::tuple{"not.and", false, true}}) {
            auto after_word = text_;
            if (!after_word.take(word) || after_word.next() != '(') continue;  // a column's name may begin so
            text_ = after_word;
            auto out = group(any, depth + 1);
            out.negated = negated;
            return out;
        }
        auto column = text_.take_name(".,()");
        text_.expect(".");
        return predicate(std::move(column), true);
    }

    std::string parameter_;
    scanner& text_;
    std::size_t count_ = 0;
};

/// Reads the columns and embedded tables of select.
class select_reader {
  public:
    explicit select_reader(scanner& text) : text_(text) {}

    std::vector<selected_column> list(std::size_t depth) {
        std::vector<selected_column> out;
        do {
            if (out.size() == names_max) throw grammar_fault{"has more than 1600 columns"};
            auto selected = item(depth);
            // The alias of * is empty.
            if (std::ranges::find(out, selected.alias, &selected_column::alias) != out.end())
                throw grammar_fault{"names " + (selected.alias.empty() ? "*" : selected.alias) + " twice"};
            if (selected.alias.size() > answer_name_bytes_max)
                throw grammar_fault{"gives a column a name of more than 63 bytes: " + selected.alias};
            if (!selected.embedded &&
                std::ranges::count(out, selected.column, &selected_column::column) == column_repeats_max)
                throw grammar_fault{"has " + selected.column + " more than 8 times"};
            if (selected.alias.starts_with("fencegate_"))  // the statement's own names
                throw grammar_fault{"gives a column a name that is reserved: " + selected.alias};
            out.push_back(std::move(selected));
        } while (text_.take(","));
        return out;
    }

  private:
    static constexpr std::string_view ends = ",:()!";

    selected_column item(std::size_t depth) {
        selected_column out;
        if (text_.take("*")) return out;
        if (text_.take("...")) throw grammar_fault{"has a spread (...), which is not supported"};
        out.column = text_.take_name(ends);
        out.alias = out.column;
        out.as_text = take_cast();
        if (!out.as_text && text_.take(":")) {
            out.column = text_.take_name(ends);
            out.as_text = take_cast();
        }
        if (!out.as_text && (text_.next() == '!' || text_.next() == '('))
            out.embedded = embedded(out.column, depth + 1);
        return out;
    }

    bool take_cast() {
        if (!text_.take("::")) return false;
        const auto type = text_.take_until(",()");
        if (type != "text") throw grammar_fault{"has a cast (::" + type + "); only ::text is supported"};
        return true;
    }

    std::shared_ptr<embedded_table> embedded(const std::string& table, std::size_t depth) {
        auto out = std::make_shared<embedded_table>();
        while (text_.take("!")) {
            auto word = text_.take_name(ends);
            if (word == "inner") {
                out->inner = true;
            } else if (word != "left") {
                if (!out->hint.empty()) throw grammar_fault{"names two foreign keys for " + table};
                out->hint = std::move(word);
            }
        }
        text_.expect("(");
        if (text_.next() == ')') refuse_aggregate(table);
        if (depth > embedding_depth_max) throw grammar_fault{"nests embedded tables deeper than 4 levels"};
        if (++count_ > embedded_tables_max) throw grammar_fault{"has more than 16 embedded tables"};
        out->rows.select = list(depth);
        text_.expect(")");
        return out;
    }

    [[noreturn]] static void refuse_aggregate(const std::string& name) {
        const auto word = name.substr(name.rfind('.') + 1);
        constexpr std::string_view aggregates[] = {"avg", "count", "max", "min", "sum"};
        if (std::ranges::find(aggregates, word) != std::end(aggregates))
            throw grammar_fault{"has an aggregate (" + word + "()), which is not supported"};
        throw grammar_fault{"has no columns in " + name + "()"};
    }

    scanner& text_;
    std::size_t count_ = 0;
};

/// Runs `read` and adds a grammar_fault that it throws to the faults of the parameter.
template <class Read>
auto collect_fault(std::string_view parameter, http::fault_list& faults, Read read) -> decltype(read()) {
    try {
        return read();
    } catch (grammar_fault& wrong) {
        faults.add(std::string(parameter), std::move(wrong.detail));
        return {};
    }
}

}  // namespace

comparison parse_condition(std::string_view parameter, std::string_view given, http::fault_list& faults,
                           std::size_t prefix) {
    return collect_fault(parameter, faults, [&] {
        scanner text(given);
        condition_reader reader(parameter, text);
        comparison out;
        const auto named = parameter.substr(prefix);
        const bool negated = named.starts_with("not.");
        const auto word = named.substr(negated ? 4 : 0);
        if (word == "or" || word == "and") {
            out = reader.group(word == "or", 1);
            out.negated = negated;
        } else {
            scanner name(named);
            auto column = name.take_name("");
            name.expect_end();
            out = reader.predicate(std::move(column), false);
        }
        text.expect_end();
        return out;
    });
}

std::vector<selected_column> parse_select(std::string_view given, http::fault_list& faults) {
    return collect_fault("select", faults, [&] {
        scanner text(given);
        select_reader reader(text);
        auto out = reader.list(0);
        text.expect_end();
        const bool every = out.size() == 1 && out.front().column.empty();
        return every ? std::vector<selected_column>() : out;
    });
}

std::vector<sort_key> parse_order(std::string_view parameter, std::string_view given, http::fault_list& faults) {
    return collect_fault(parameter, faults, [&] {
        std::vector<sort_key> out;
        scanner text(given);
        do {
            if (out.size() == sort_keys_max) throw grammar_fault{"has more than 64 columns"};
            sort_key key;
            key.column = text.take_name(".,()");
            if (text.next() == '(') throw grammar_fault{"can't order by a column of an embedded table"};
            if (text.take(".desc")) {
                key.descending = true;
            } else {
                text.take(".asc");
            }
            if (text.take(".nullsfirst")) {
                key.nulls_first = true;
            } else if (text.take(".nullslast")) {
                key.nulls_first = false;
            }
            out.push_back(std::move(key));
        } while (text.take(","));
        text.expect_end();
        return out;
    });
}

std::vector<std::string> parse_names(std::string_view parameter, std::string_view given, http::fault_list& faults) {
    return collect_fault(parameter, faults, [&] {
        std::vector<std::string> out;
        scanner text(given);
        do {
            if (out.size() == names_max) throw grammar_fault{"has more than 1600 columns"};
            out.push_back(text.take_name(","));
        } while (text.take(","));
        text.expect_end();
        return out;
    });
}

std::size_t count_conditions(const comparison& condition) {
    std::size_t count = condition.members.empty() ? 1 : 0;
    for (const auto& member : condition.members)
        count += count_conditions(member);
    return count;
}

std::size_t count_pattern_bytes(const comparison& condition) {
    const bool is_pattern = condition.op == comparison_operator::like || condition.op == comparison_operator::ilike;
    std::size_t count = is_pattern ? condition.value.as_string().size() : 0;
    for (const auto& member : condition.members)
        count += count_pattern_bytes(member);
    return count;
}

}  // namespace fencegate::api
