"""A request's token tree: the prompt is its trunk, drafts and beams are its branches."""

from collections.abc import Iterable, Sequence

from decoders.shapes import NodeId, TokenId


class TokenTree:
    """A growing tree of (token, parent, depth).

    Node ids are never reused, so that a trace can refer to them. A dropped node keeps its id, token
    and parent, but `add` no longer finds it.

    Attributes:
        trunk: `trunk[d]` is the node of depth d that every live tip descends from (or is)
        tail: the other live nodes, parents first
        commits: how often `keep` was called
    """

    def __init__(self, prompt: Sequence[TokenId]):
        self.tokens: list[TokenId] = list(prompt)
        self.parents: list[NodeId] = list(range(-1, len(prompt) - 1))
        self.depths: list[int] = list(range(len(prompt)))
        self.trunk: list[NodeId] = list(range(len(prompt)))
        self.tail: list[NodeId] = []
        self.prompt_length = len(prompt)
        self.commits = 0
        self._children: dict[tuple[NodeId, TokenId], NodeId] = {}

    def add(self, parent: NodeId, token: TokenId) -> NodeId:
        """The child of a node with this token; equal beams share one node.

        Args:
            parent: the last node of the trunk, or a node of the tail
            token: the child's token
        """
        node = self._children.get((parent, token))
        if node is None:
            node = len(self.tokens)
            self._children[parent, token] = node
            self.tokens.append(token)
            self.parents.append(parent)
            self.depths.append(self.depths[parent] + 1)
            self.tail.append(node)
        return node

    def lineage(self, node: NodeId, stop: int = 0) -> list[NodeId]:
        """The nodes from depth `stop` to `node`, in reading order."""
        nodes = []
        while node >= 0 and self.depths[node] >= stop:
            nodes.append(node)
            node = self.parents[node]
        return nodes[::-1]

    def fork(self, a: NodeId, b: NodeId) -> NodeId:
        """The deepest node that both descend from (or are)."""
        while a != b:
            if self.depths[a] >= self.depths[b]:
                a = self.parents[a]
            else:
                b = self.parents[b]
        return a

    def text(self, node: NodeId, stop: int = 0) -> list[TokenId]:
        """The tokens from depth `stop` to `node`, in reading order."""
        return [self.tokens[n] for n in self.lineage(node, stop)]

    def new_tokens(self, node: NodeId) -> list[TokenId]:
        """The tokens after the prompt, up to and including `node`."""
        return self.text(node, self.prompt_length)

    def new_length(self, node: NodeId) -> int:
        """The number of tokens after the prompt, up to and including `node`."""
        return self.depths[node] + 1 - self.prompt_length

    def in_trunk(self, node: NodeId) -> bool:
        depth = self.depths[node]
        return depth < len(self.trunk) and self.trunk[depth] == node

    def keep(self, tips: Iterable[NodeId]) -> None:
        """Keep these tips and their ancestors, and drop every other branch.

        The trunk grows to the deepest node that all tips descend from (or are).
        """
        self.commits += 1
        tips = set(tips)
        if len(tips) == 1:
            self.trunk += self.lineage(tips.pop(), len(self.trunk))
            self.tail, self._children = [], {}
            return
        live: set[NodeId] = set()
        tip = self.trunk[-1]
        for node in tips:
            # Nodes of the tail are younger than the trunk.
            while node > tip and node not in live:
                live.add(node)
                node = self.parents[node]
        tail = sorted(live)
        only: dict[NodeId, NodeId | None] = {}
        for node in tail:
            parent = self.parents[node]
            only[parent] = None if parent in only else node
        # The trunk grows as long as all tips descend from one child.
        while tip not in tips and (child := only.get(tip)) is not None:
            tip = child
            self.trunk.append(tip)
        self.tail = [node for node in tail if node > tip]
        self._children = {(self.parents[node], self.tokens[node]): node for node in self.tail}
