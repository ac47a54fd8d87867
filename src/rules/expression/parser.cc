// Recursive descent, one function a line of the grammar:
//
//   expression  = condition [ "for" number "steps" ]
//   condition   = conjunction { "or" conjunction }
//   conjunction = negation { "and" negation }
//   negation    = "not" negation | comparison
//   comparison  = sum [ ( ">" | ">=" | "<" | "<=" | "==" | "!=" ) sum ]
//   sum         = product { ( "+" | "-" ) product }
//   product     = factor { ( "*" | "/" ) factor }
//   factor      = "-" factor | number | "(" condition ")" | call | tensors
//   call        = statistic "(" tensors ")"
//               | window "(" sum "," number "steps" ")"
//               | across "(" sum ")"
//               | function "(" sum ")"
//   tensors     = name | quoted regex
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>

#include <fmt/core.h>

#include "base/error.h"
#include "base/text.h"
#include "rules/expression/expression.h"
#include "rules/expression/lexer.h"

namespace tensortap::expression {
namespace {

constexpr std::size_t kMaxLength = 4096;
constexpr int kMaxDepth = 64;
constexpr std::int64_t kMaxSteps = 10'000;

struct NamedFunction {
  std::string_view name;
  Function function;
};
constexpr std::array<NamedFunction, 4> kFunctions = {{{"abs", Function::kAbs},
                                                      {"sqrt", Function::kSqrt},
                                                      {"log", Function::kLog},
                                                      {"exp", Function::kExp}}};
constexpr std::array<NamedFunction, 6> kWindows = {{{"min", Function::kMin},
                                                    {"max", Function::kMax},
                                                    {"mean", Function::kMean},
                                                    {"median", Function::kMedian},
                                                    {"sum", Function::kSum},
                                                    {"std", Function::kStd}}};
constexpr std::array<NamedFunction, 4> kAcross = {{{"min_of", Function::kMin},
                                                   {"max_of", Function::kMax},
                                                   {"mean_of", Function::kMean},
                                                   {"sum_of", Function::kSum}}};

template <std::size_t N>
std::optional<Function> find_function(const std::array<NamedFunction, N>& table,
                                      std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const NamedFunction& one) { return one.name == name; });
  return found != table.end() ? std::optional(found->function) : std::nullopt;
}

// "p50" is 0.5, "p99.9" is 0.999.
std::optional<double> find_quantile(std::string_view name) {
  if (name.size() < 2 || name[0] != 'p') return std::nullopt;
  const std::optional<double> percent = parse_double(name.substr(1));
  const bool is_one = percent && *percent >= 0.0 && *percent <= 100.0;
  return is_one ? std::optional(*percent / 100.0) : std::nullopt;
}

bool is_condition(NodeKind kind) { return kind >= NodeKind::kLess; }

class Parser {
 public:
  explicit Parser(std::string_view text) : tokens_(tokenize(text)) {
    expression_.text = trim(text);
  }

  Expression parse() {
    const Token start = peek();
    const int root = condition();
    require_condition(root, start);
    if (accept("for")) expression_.consecutive = step_count();
    if (peek().kind != TokenKind::kEnd) {
      fail_at(peek(), "expected an operator, 'and', 'or', 'for N steps' or the end");
    }
    if (expression_.selections.empty()) fail_at(start, "no tensor stands in this expression");
    return std::move(expression_);
  }

 private:
  // ------------------------------------------------------------ conditions

  int condition() {
    const Depth depth(*this);
    return chain({{"or", NodeKind::kOr}}, &Parser::conjunction);
  }
  int conjunction() { return chain({{"and", NodeKind::kAnd}}, &Parser::negation); }

  int negation() {
    const Depth depth(*this);
    if (!accept("not")) return comparison();
    const Token start = peek();
    const int child = negation();
    require_condition(child, start);
    return add({.kind = NodeKind::kNot, .children = {child}});
  }

  int comparison() {
    const Token start = peek();
    const int left = sum();
    constexpr std::array<std::pair<std::string_view, NodeKind>, 6> kOperators = {
        {{">", NodeKind::kGreater},
         {">=", NodeKind::kGreaterEqual},
         {"<", NodeKind::kLess},
         {"<=", NodeKind::kLessEqual},
         {"==", NodeKind::kEqual},
         {"!=", NodeKind::kNotEqual}}};
    for (const auto& [symbol, kind] : kOperators) {
      if (!accept(symbol)) continue;
      require_number(left, start);
      const Token right_start = peek();
      const int right = sum();
      require_number(right, right_start);
      return add({.kind = kind, .children = {left, right}});
    }
    return left;
  }

  // ------------------------------------------------------------ numbers

  int sum() { return chain({{"+", NodeKind::kAdd}, {"-", NodeKind::kSubtract}}, &Parser::product); }
  int product() {
    return chain({{"*", NodeKind::kMultiply}, {"/", NodeKind::kDivide}}, &Parser::factor);
  }

  int factor() {
    const Depth depth(*this);
    const Token token = peek();
    if (accept("-")) {
      const int child = factor();
      require_number(child, token);
      return add({.kind = NodeKind::kNegate, .children = {child}});
    }
    if (accept("(")) {
      const int inner = condition();
      expect(")");
      return inner;
    }
    if (token.kind == TokenKind::kNumber) {
      ++next_;
      return add({.kind = NodeKind::kNumber, .number = token.number});
    }
    if (token.kind == TokenKind::kName && tokens_[next_ + 1].text == "(" &&
        tokens_[next_ + 1].kind == TokenKind::kSymbol) {
      return call();
    }
    return add_leaf({.kind = NodeKind::kValue});
  }

  int call() {
    const Token name = tokens_[next_];
    next_ += 2;
    if (const auto function = find_function(kFunctions, name.text)) {
      return finish_call({.kind = NodeKind::kFunction, .function = *function});
    }
    if (const auto function = find_function(kAcross, name.text)) {
      return across(*function, name);
    }
    if (const auto quantile = find_quantile(name.text))
      return statistic({.kind = NodeKind::kQuantile, .number = *quantile});
    if (find_function(kWindows, name.text) && is_window())
      return window(*find_function(kWindows, name.text));
    if (const auto found = statistic_from_name(name.text))
      return statistic({.kind = NodeKind::kStatistic, .statistic = *found});
    if (find_function(kWindows, name.text))
      fail_at(peek(),
              fmt::format("{} takes an expression, a comma and a number of steps", name.text));
    fail_at(name, "no statistic and no function has this name" +
                      did_you_mean(name.text, function_names()));
  }

  // Whether a comma stands in the parentheses that have just been opened.
  bool is_window() const {
    int open = 1;
    for (std::size_t i = next_; i < tokens_.size() && open > 0; ++i) {
      if (tokens_[i].kind != TokenKind::kSymbol) continue;
      open += (tokens_[i].text == "(") - (tokens_[i].text == ")");
      if (open == 1 && tokens_[i].text == ",") return true;
    }
    return false;
  }

  int statistic(Node node) {
    const int leaf = add_leaf(std::move(node));
    expect(")");
    return leaf;
  }

  int window(Function function) {
    Node node{.kind = NodeKind::kWindow, .function = function};
    const Token start = peek();
    node.children = {sum()};
    require_number(node.children[0], start);
    expect(",");
    node.steps = step_count();
    expect(")");
    return add(std::move(node));
  }

  int across(Function function, const Token& name) {
    const Token start = peek();
    const int child = sum();
    require_number(child, start);
    expect(")");
    const std::uint64_t needs = expression_.nodes[static_cast<std::size_t>(child)].needs;
    if (!std::has_single_bit(needs)) {
      fail_at(name, "its parentheses must hold exactly one set of tensors");
    }
    Node node{.kind = NodeKind::kAcross, .function = function, .children = {child}};
    node.selection = static_cast<std::size_t>(std::countr_zero(needs));
    return add(std::move(node));
  }

  int finish_call(Node node) {
    const Token start = peek();
    node.children = {sum()};
    require_number(node.children[0], start);
    expect(")");
    return add(std::move(node));
  }

  int add_leaf(Node node) {
    node.selection = tensors();
    node.needs = std::uint64_t{1} << node.selection;
    return add(std::move(node));
  }

  std::size_t tensors() {
    const Token token = peek();
    const bool is_name = token.kind == TokenKind::kName && !is_word(token.text);
    if (!is_name && token.kind != TokenKind::kQuoted) {
      fail_at(token, "expected a number, a collection, a tensor, or a regex in quotes");
    }
    ++next_;
    const Selection selection{token.text, token.kind == TokenKind::kQuoted};
    auto& all = expression_.selections;
    const auto known = std::find(all.begin(), all.end(), selection);
    if (known != all.end()) return static_cast<std::size_t>(known - all.begin());
    if (all.size() == kMaxSelections) fail_at(token, "too many different tensors");
    all.push_back(selection);
    return all.size() - 1;
  }

  std::int64_t step_count() {
    const Token token = peek();
    const bool is_count = token.kind == TokenKind::kNumber && token.number >= 1 &&
                          token.number <= static_cast<double>(kMaxSteps) &&
                          token.number == std::floor(token.number);
    if (!is_count)
      fail_at(token, fmt::format("expected a number of steps from 1 to {}", kMaxSteps));
    ++next_;
    if (!accept("steps") && !accept("step")) fail_at(peek(), "expected 'steps'");
    return static_cast<std::int64_t>(token.number);
  }

  // ------------------------------------------------------------ machinery

  // A text of nothing but parentheses must not exhaust the stack.
  class Depth {
   public:
    explicit Depth(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxDepth) fail_at(parser_.peek(), "nested too deeply");
    }
    ~Depth() { --parser_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Parser& parser_;
  };

  int chain(std::initializer_list<std::pair<std::string_view, NodeKind>> operators,
            int (Parser::*operand)()) {
    const Token start = peek();
    int left = (this->*operand)();
    while (true) {
      const auto found = std::find_if(operators.begin(), operators.end(),
                                      [&](const auto& one) { return accept(one.first); });
      if (found == operators.end()) return left;
      const Token right_start = peek();
      const int right = (this->*operand)();
      for (const auto& [child, token] : {std::pair(left, start), std::pair(right, right_start)}) {
        is_condition(found->second) ? require_condition(child, token)
                                    : require_number(child, token);
      }
      left = add({.kind = found->second, .children = {left, right}});
    }
  }

  int add(Node node) {
    for (std::size_t i = 0; i < node.children.size(); ++i)
      node.needs |= expression_.child(node, i).needs;
    if (node.kind == NodeKind::kAcross) node.needs = 0;
    expression_.nodes.push_back(std::move(node));
    return static_cast<int>(expression_.nodes.size() - 1);
  }

  void require_condition(int node, const Token& start) const {
    if (!is_condition(expression_.nodes[static_cast<std::size_t>(node)].kind)) {
      fail_at(start, "expected a comparison such as 'loss > 10'");
    }
  }
  void require_number(int node, const Token& start) const {
    if (is_condition(expression_.nodes[static_cast<std::size_t>(node)].kind)) {
      fail_at(start, "expected a number, not a comparison");
    }
  }

  static bool is_word(std::string_view text) {
    return text == "and" || text == "or" || text == "not" || text == "for";
  }
  const Token& peek() const { return tokens_[next_]; }
  bool accept(std::string_view text) {
    const Token& token = peek();
    const bool is_it =
        (token.kind == TokenKind::kSymbol || token.kind == TokenKind::kName) && token.text == text;
    next_ += is_it ? 1 : 0;
    return is_it;
  }
  void expect(std::string_view text) {
    if (!accept(text)) fail_at(peek(), fmt::format("expected '{}'", text));
  }

  std::vector<Token> tokens_;
  std::size_t next_ = 0;
  int depth_ = 0;
  Expression expression_;
};

}  // namespace

bool is_comparison(NodeKind kind) { return kind >= NodeKind::kLess && kind <= NodeKind::kNotEqual; }

std::vector<std::string> function_names() {
  std::vector<std::string> names;
  for (const NamedFunction& one : kFunctions) names.emplace_back(one.name);
  for (const NamedFunction& one : kWindows) names.emplace_back(one.name);
  for (const NamedFunction& one : kAcross) names.emplace_back(one.name);
  for (const StatisticDescriptor& statistic : statistic_table()) names.emplace_back(statistic.name);
  names.emplace_back("p50");
  return names;
}

Expression parse(std::string_view text) {
  if (text.size() > kMaxLength) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("an expression has at most {} characters, not {}", kMaxLength, text.size()));
  }
  return Parser(text).parse();
}

}  // namespace tensortap::expression
