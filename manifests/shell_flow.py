"""Which statements of a shell text run: lists, branches, loops, cases, tests on known values.

Called by :mod:`manifests.shell`, whose shell is a :class:`Flow`. What only the running container decides is followed as
uncertain; what such a branch assigns is no longer known.
"""

from __future__ import annotations

import fnmatch
import re
from abc import ABC, abstractmethod

from tree_sitter import Node

from manifests.shell_words import Token, Value, Words


class Exit(Exception):
    """The script certainly ends here (exec, exit)."""


class Flow(Words, ABC):
    """Control flow over the statements of a subclass."""

    vars: dict[str, Value]
    unsure: int

    @abstractmethod
    def _statement(self, node: Node, background: bool = False) -> None:
        """Follow one statement."""

    def _on_list(self, node: Node) -> None:
        parts = node.children
        self._statement(parts[0])
        operator = parts[1].type if len(parts) > 2 else ""
        if len(parts) < 3:
            return
        outcome = self._outcome(parts[0])
        if operator == "&&" and outcome is not False:
            self._statement(parts[2])
        elif operator == "||" and outcome is not True:
            if outcome is False:
                self._statement(parts[2])
            else:
                self._perhaps([parts[2]])

    def _on_if_statement(self, node: Node) -> None:
        branches: list[tuple[Node | None, list[Node]]] = []
        condition = node.child_by_field_name("condition")
        body: list[Node] = []
        for child in node.named_children:
            if child.type in ("elif_clause", "else_clause"):
                branches.append((condition, body))
                inner = [c for c in child.named_children if c.type != "comment"]
                condition, body = (inner[0], inner[1:]) if child.type == "elif_clause" else (None, inner)
            elif condition is None or child.id != condition.id:
                body.append(child)
        branches.append((condition, body))
        unsure: list[list[Node]] = []
        for test, statements in branches:
            outcome = True if test is None else self._outcome(test)
            if outcome is False:
                continue
            if outcome is True and not unsure:
                for statement in statements:
                    self._statement(statement)
                return
            unsure.append(statements)
            if outcome is True:
                break
        if unsure:
            self._alternatives(unsure)

    def _alternatives(self, branches: list[list[Node]]) -> None:
        before = dict(self.vars)
        results = []
        for statements in branches:
            self.vars = dict(before)
            self._perhaps(statements, merge=False)
            results.append(self.vars)
        merged = dict(before)
        for name in {key for result in [*results] for key in result}:
            values = [result.get(name, before.get(name)) for result in [*results, before]]
            merged[name] = values[0] if all(value == values[0] for value in values) else Token(f"${{{name}}}", False)  # type: ignore[assignment]
        self.vars = merged

    def _perhaps(self, statements: list[Node], merge: bool = True) -> None:
        """Statements that may or may not run: their commands are uncertain, what they assign is no longer known."""
        before = dict(self.vars)
        self.unsure += 1
        try:
            for statement in statements:
                self._statement(statement)
        except Exit:
            self.vars = before
        finally:
            self.unsure -= 1
        if merge:
            for name, value in self.vars.items():
                if before.get(name) != value:
                    self.vars[name] = Token(f"${{{name}}}", False)

    def _on_while_statement(self, node: Node) -> None:
        body = [child for child in node.named_children if child.type == "do_group"]
        condition = node.child_by_field_name("condition")
        if condition is None or self._outcome(condition) is not False:
            self._perhaps(list(body))

    def _on_for_statement(self, node: Node) -> None:
        name_node = node.child_by_field_name("variable")
        body = [child for child in node.named_children if child.type == "do_group"]
        words: list[Token] = []
        for child in node.named_children:
            if child.type not in ("do_group", "comment") and (name_node is None or child.id != name_node.id):
                words += self.words(child)
        if name_node is None or len(words) > 64 or not all(word.known for word in words):
            if name_node is not None:
                self.vars[self.text(name_node)] = Token(f"${{{self.text(name_node)}}}", False)
            self._perhaps(list(body))
            return
        for word in words:
            self.vars[self.text(name_node)] = word
            for statement in body:
                self._statement(statement)

    def _on_c_style_for_statement(self, node: Node) -> None:
        self._perhaps([child for child in node.named_children if child.type in ("do_group", "compound_statement")])

    def _on_case_statement(self, node: Node) -> None:
        subject = node.child_by_field_name("value")
        value = self.one(subject) if subject is not None else Token("", False)
        bodies: list[list[Node]] = []
        for item in node.named_children:
            if item.type != "case_item":
                continue
            patterns = [
                c for i, c in enumerate(item.children) if c.is_named and item.field_name_for_child(i) == "value"
            ]
            body = [c for i, c in enumerate(item.children) if c.is_named and item.field_name_for_child(i) != "value"]
            if not value.known:
                bodies.append(body)
            elif any(fnmatch.fnmatchcase(value.text, self.one(pattern).text) for pattern in patterns):
                for statement in body:
                    self._statement(statement)
                return
        if bodies:
            self._alternatives(bodies)

    def _outcome(self, node: Node) -> bool | None:
        """Whether a condition is certainly true or false; None when that depends on run time."""
        if node.type == "list" and len(node.children) > 2:
            left, right = self._outcome(node.children[0]), self._outcome(node.children[2])
            if node.children[1].type == "&&":
                return False if left is False or right is False else True if left and right else None
            return True if left or right else False if left is False and right is False else None
        if node.type == "negated_command" and node.named_children:
            inner = self._outcome(node.named_children[0])
            return None if inner is None else not inner
        if node.type == "test_command" and node.named_children:
            return self._test_node(node.named_children[0])
        if node.type == "command":
            words = [token for child in node.named_children for token in self.words(child)]
            if words and words[0].text in ("true", ":", "false"):
                return words[0].text != "false"
            if words and words[0].text == "test":
                return self._test_words(words[1:])
        return None

    def _test_node(self, node: Node) -> bool | None:
        if (
            node.type in ("unary_expression", "binary_expression")
            and "&&" not in self.text(node)
            and "||" not in self.text(node)
        ):
            tokens: list[Token] = []
            for child in node.children:
                tokens += (
                    [self.one(child)] if child.is_named and child.type != "test_operator" else [Token(self.text(child))]
                )
            return self._test_words(tokens)
        if node.type in ("word", "string", "simple_expansion", "expansion", "concatenation", "number"):
            token = self.one(node)
            return bool(token.text) if token.known else None
        return None

    @staticmethod
    def _test_words(words: list[Token]) -> bool | None:
        if words and words[0].text == "!":
            inner = Flow._test_words(words[1:])
            return None if inner is None else not inner
        if len(words) == 1:
            return bool(words[0].text) if words[0].known else None
        if len(words) == 2 and words[0].text in ("-n", "-z"):
            return (bool(words[1].text) == (words[0].text == "-n")) if words[1].known else None
        if len(words) == 3 and words[0].known and words[2].known:
            left, operator, right = (word.text for word in words)
            if operator in ("=", "=="):
                return fnmatch.fnmatchcase(left, right) if "*" in right else left == right
            if operator == "!=":
                return left != right
            if re.fullmatch(r"-?\d{1,18}", left) and re.fullmatch(r"-?\d{1,18}", right):
                a, b = int(left), int(right)
                return {"-eq": a == b, "-ne": a != b, "-lt": a < b, "-le": a <= b, "-gt": a > b, "-ge": a >= b}.get(
                    operator
                )
        return None
