package tokenizer

import (
	"sort"
	"strings"
)

// trie finds, at one place of a text, all tokens that start there. Looking at every place costs at most the length of the
// longest token (bounded by maxAddedToken) for each, whatever the number of tokens; places whose byte starts no token are
// skipped at the speed of a scan for that byte.
type trie struct {
	nodes []trieNode
	first [256]bool
	only  int // the only byte that tokens start with, or -1
}

type trieNode struct {
	edges []trieEdge // sorted by b
	token int32      // index of the token that ends here, or -1
}

type trieEdge struct {
	b  byte
	to int32
}

// newTrie builds the trie of texts, which are not empty. Of equal texts the first counts.
func newTrie(texts []string) *trie {
	t := &trie{nodes: []trieNode{{token: -1}}, only: -1}
	starts := 0
	for i, s := range texts {
		at := int32(0)
		for k := 0; k < len(s); k++ {
			at = t.child(at, s[k])
		}
		if t.nodes[at].token < 0 {
			t.nodes[at].token = int32(i)
		}
		if !t.first[s[0]] {
			t.first[s[0]] = true
			t.only = int(s[0])
			starts++
		}
	}
	if starts != 1 {
		t.only = -1
	}
	return t
}

func (t *trie) child(at int32, b byte) int32 {
	e := t.nodes[at].edges
	k := sort.Search(len(e), func(i int) bool { return e[i].b >= b })
	if k < len(e) && e[k].b == b {
		return e[k].to
	}
	to := int32(len(t.nodes))
	e = append(e, trieEdge{})
	copy(e[k+1:], e[k:])
	e[k] = trieEdge{b, to}
	t.nodes[at].edges = e
	t.nodes = append(t.nodes, trieNode{token: -1})
	return to
}

// candidate returns the first place at or after i where a token may start, else -1.
func (t *trie) candidate(s string, i int) int {
	if t.only >= 0 {
		k := strings.IndexByte(s[i:], byte(t.only))
		if k < 0 {
			return -1
		}
		return i + k
	}
	for ; i < len(s); i++ {
		if t.first[s[i]] {
			return i
		}
	}
	return -1
}

// at appends the tokens that start at s[i], shortest first.
func (t *trie) at(s string, i int, found []int32) []int32 {
	node := &t.nodes[0]
	for ; i < len(s); i++ {
		e := node.edges
		lo, hi := 0, len(e)
		for lo < hi {
			mid := (lo + hi) / 2
			if e[mid].b < s[i] {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		if lo == len(e) || e[lo].b != s[i] {
			break
		}
		node = &t.nodes[e[lo].to]
		if node.token >= 0 {
			found = append(found, node.token)
		}
	}
	return found
}
