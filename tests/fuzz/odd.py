"""Odd values, as source: a call that fails can be pasted."""

from hypothesis import strategies as st

# Two spaces part them. A generator, and an array or a range of 10**12 values, takes no memory until
# somebody lists it.
WRITTEN = r"""
None  True  False  0  1  2  -1  64  2**31  2**63  2**64  10**30  -10**30  10**5000  0.0  -0.0  0.5
1.5  3.0  5e-324  1e308  float('nan')  float('inf')  -float('inf')  1j  ''  '.'  'a'  'false'
'None'  'nan'  '0'  '\ud83d'  'a\udc00b'  '\0'  'é'  '/'  '../..'  'a'*5000  'a'*10**5  'mtad'
'cpu'  'meta'  'auto'  b''  b'abc'  bytearray(b'a')  memoryview(b'a')  ()  []  {}  set()  [[]]
[[[]]]  [None]  ['']  [1,'a']  ['a','\ud83d']  {'a':1}  {1:2}  frozenset({1})  range(0)  range(3)
range(10**12)  range(10**30)  (i for i in range(3))  iter([1])  np.int64(3)  np.uint64(2**64-1)
np.float16(0.5)  np.float32(0.5)  np.float64('nan')  np.longdouble(1)  np.bool_(True)  np.str_('a')
np.bytes_(b'a')  np.complex64(1)  np.timedelta64(3)  np.datetime64('2020-01-01')  np.array(3)
np.array([1,2])  np.array([[1,2],[3,4]])  np.ones(2)  np.zeros((2,0))  np.array(['a'])
np.array([None])  np.array([Mute()])  np.broadcast_to(np.zeros(1),10**12)  torch.tensor(3)
torch.tensor(0.5)  torch.tensor(True)  torch.tensor([1,2])  torch.tensor([[1,2],[3,4]])
torch.ones(2)  torch.zeros(2,0)  torch.tensor(float('nan'))  torch.zeros(1).expand(10**12)
torch.empty(3,device='meta')  torch.eye(2).to_sparse()  torch.eye(2).requires_grad_()  torch.float32
torch.float8_e4m3fn  torch.int8  torch.device('cpu')  torch.device('meta')  Fraction(1,2)
Fraction(3)  Fraction(10**400,3)  Decimal('0.5')  Decimal('NaN')  Mute()  [Mute()]  (Mute(),)
{'a':Mute()}  object()  Ellipsis  NotImplemented  pair  bare  decoders  decoders.catalog
decoders.Warping()  decoders.catalog['greedy']()  threading.Event()  Path('a')  Path('/')
Path('\0')  folder  Penalty(1.2)  [Penalty(1.2)]  Lookup()  tokenizer.backend_tokenizer
{'role':'user','content':'a'}  [{'role':'user','content':'a'}]
[{'role':'user'}]  [{'role':Mute(),'content':1}]  [{'role':'system','content':None}]
[{'role':'assistant','content':'\ud83d'}]  target.config  TextStreamer(tokenizer)
slice(3)  type([])  Exception('a')
"""
CALLABLE = (
    "len  int  Mute  tokenizer  target  draft  encoder  decoders.catalog['mtad']  "
    "decoders.load_pair"
)


def parts(written: str) -> list[str]:
    return [part for line in written.strip().splitlines() for part in line.split("  ")]


DRAWN = st.one_of(
    st.integers().map(repr),
    st.floats().map(lambda x: f"float('{x}')"),
    st.text(st.characters(exclude_categories=())).map(ascii),
    st.binary(max_size=8).map(repr),
)
ODD = st.recursive(
    st.sampled_from(parts(WRITTEN)) | st.sampled_from(parts(WRITTEN)) | DRAWN,
    lambda odd: st.one_of(
        st.lists(odd, max_size=4).map(lambda all: f"[{', '.join(all)}]"),
        st.lists(odd, min_size=1, max_size=3).map(lambda all: f"({', '.join(all)},)"),
        odd.map(lambda one: f"{{'a': {one}}}"),
    ),
    max_leaves=4,
)
ODD_OR_CALLABLE = ODD | st.sampled_from(parts(CALLABLE))
