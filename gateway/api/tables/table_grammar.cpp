#include <gateway/api/tables/table_grammar.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>

namespace fencegate::api {
namespace {

constexpr std::size_t name_bytes_max = 128;
constexpr std::size_t sort_keys_max = 64;

constexpr std::array<std::pair<std::string_view, comparison_operator>, 10> operators{
    {{"eq", comparison_operator::eq},
     {"neq", comparison_operator::neq},
     {"lt", comparison_operator::lt},
     {"lte", comparison_operator::lte},
     {"gt", comparison_operator::gt},
     {"gte", comparison_operator::gte},
     {"like", comparison_operator::like},
     {"ilike", comparison_operator::ilike},
     {"in", comparison_operator::in},
     {"is", comparison_operator::is}}};

/// What is wrong with a text; caught where its parameter is known.
struct grammar_fault {
    std::string detail;
};

/// Reads a parameter's value from left to right.
class scanner {
  public:
    explicit scanner(std::string_view text) : rest_(text) {}

    bool at_end() const { return rest_.empty(); }
    char next() const { return rest_.empty() ? '\0' : rest_.front(); }

    bool take(std::string_view what) {
        if (!rest_.starts_with(what)) return false;
        rest_.remove_prefix(what.size());
        return true;
    }

    void expect(std::string_view what) {
        if (!take(what)) throw grammar_fault{"misses " + std::string(what) + " before '" + shown() + "'"};
    }

    std::string take_all() { return std::string(std::exchange(rest_, {})); }

    /// Up to the first of `ends`, or the end.
    std::string take_until(std::string_view ends) {
        const auto size = std::min(rest_.find_first_of(ends), rest_.size());
        std::string out(rest_.substr(0, size));
        rest_.remove_prefix(size);
        return out;
    }

    /// `"…"`, in which \ takes the next character as it is; else up to the first of `ends`.
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
        auto out = take_text(ends);
        if (out.empty() || out.size() > name_bytes_max) throw grammar_fault{"misses a name before '" + shown() + "'"};
        return out;
    }

    void expect_end() const {
        if (!at_end()) throw grammar_fault{"has '" + shown() + "' behind its end"};
    }

  private:
    std::string shown() const { return std::string(rest_.substr(0, 20)); }

    std::string_view rest_;
};

boost::json::value truth_value(const std::string& word) {
    if (word == "null") return nullptr;
    if (word == "true" || word == "false") return word == "true";
    if (word == "unknown") return boost::json::value(word);
    throw grammar_fault{"is takes null, true, false or unknown"};
}

boost::json::array list_of(scanner& text) {
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

/// Without wildcards that stand behind another and find nothing more: %% is %.
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

/// Reads conditions. `inside`: within a group, where a comma or a parenthesis ends a value.
class condition_reader {
  public:
    condition_reader(std::string_view parameter, scanner& text) : parameter_(parameter), text_(text) {}

    comparison predicate(std::string column, bool inside) {
        auto out = empty();
        out.column = std::move(column);
        out.negated = text_.take("not.");
        const auto word = text_.take_until(".,()");
        const auto* known =
            std::ranges::find(operators, std::string_view(word), [](const auto& row) { return row.first; });
        if (known == operators.end() || !text_.take(".")) {
            throw grammar_fault{
                "has no operator; write it as eq.VALUE, with one of eq, neq, lt, lte, gt, gte, like, "
                "ilike, in and is"};
        }
        out.op = known->second;
        if (out.op == comparison_operator::in) {
            out.value = list_of(text_);
            return out;
        }
        auto value = inside ? text_.take_text(",)") : text_.take_all();
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
    comparison empty() const {
        comparison out;
        out.pointer = parameter_;
        out.literal = true;
        return out;
    }

    comparison member(std::size_t depth) {
        if (++count_ > conditions_max) throw grammar_fault{"has more than 256 conditions"};
        for (const auto& [word, any, negated] :
             {std::tuple{"or(", true, false}, std::tuple{"and(", false, false}, std::tuple{"not.or(", true, true},
              std::tuple{"not.and(", false, true}}) {
            auto ahead = text_;
            if (!ahead.take(word)) continue;
            text_.take(std::string_view(word).substr(0, std::string_view(word).size() - 1));
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

/// Runs `read`; what it finds wrong is a fault of the parameter.
template <class Read>
auto noting(std::string_view parameter, http::fault_list& faults, Read read) -> decltype(read()) {
    try {
        return read();
    } catch (grammar_fault& wrong) {
        faults.add(std::string(parameter), std::move(wrong.detail));
        return {};
    }
}

}  // namespace

comparison parse_condition(std::string_view parameter, std::string_view given, http::fault_list& faults) {
    return noting(parameter, faults, [&] {
        scanner text(given);
        condition_reader reader(parameter, text);
        comparison out;
        const bool negated = parameter.starts_with("not.");
        const auto word = parameter.substr(negated ? 4 : 0);
        if (word == "or" || word == "and") {
            out = reader.group(word == "or", 1);
            out.negated = negated;
        } else {
            scanner name(parameter);
            auto column = name.take_name("");
            name.expect_end();
            out = reader.predicate(std::move(column), false);
        }
        text.expect_end();
        return out;
    });
}

std::vector<selected_column> parse_select(std::string_view given, http::fault_list& faults) {
    return noting("select", faults, [&] {
        std::vector<selected_column> out;
        scanner text(given);
        if (text.take("*")) {
            text.expect_end();
            return out;
        }
        do {
            selected_column one;
            one.column = text.take_name(",:()");
            one.alias = one.column;
            if (text.take(":")) one.column = text.take_name(",:()");
            if (std::ranges::find(out, one.alias, &selected_column::alias) != out.end())
                throw grammar_fault{"names " + one.alias + " twice"};
            out.push_back(std::move(one));
        } while (text.take(","));
        text.expect_end();
        return out;
    });
}

std::vector<sort_key> parse_order(std::string_view given, http::fault_list& faults) {
    return noting("order", faults, [&] {
        std::vector<sort_key> out;
        scanner text(given);
        do {
            if (out.size() == sort_keys_max) throw grammar_fault{"has more than 64 columns"};
            sort_key one;
            one.column = text.take_name(".,");
            if (text.take(".desc")) {
                one.descending = true;
            } else {
                text.take(".asc");
            }
            if (text.take(".nullsfirst")) {
                one.nulls_first = true;
            } else if (text.take(".nullslast")) {
                one.nulls_first = false;
            }
            out.push_back(std::move(one));
        } while (text.take(","));
        text.expect_end();
        return out;
    });
}

std::vector<std::string> parse_names(std::string_view parameter, std::string_view given, http::fault_list& faults) {
    return noting(parameter, faults, [&] {
        std::vector<std::string> out;
        scanner text(given);
        do {
            out.push_back(text.take_name(","));
        } while (text.take(","));
        text.expect_end();
        return out;
    });
}

std::size_t count_conditions(const comparison& one) {
    std::size_t count = one.members.empty() ? 1 : 0;
    for (const auto& member : one.members)
        count += count_conditions(member);
    return count;
}

std::size_t count_pattern_bytes(const comparison& one) {
    const bool is_pattern = one.op == comparison_operator::like || one.op == comparison_operator::ilike;
    std::size_t count = is_pattern ? one.value.as_string().size() : 0;
    for (const auto& member : one.members)
        count += count_pattern_bytes(member);
    return count;
}

}  // namespace fencegate::api
