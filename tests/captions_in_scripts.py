"""Captions mainly in the Latin script, some with characters of other scripts, and captions in other scripts."""

LATIN = [
    "a brown dog runs along the beach with a red ball",
    "a naïve café — “OPEN” … and a dog’s bowl 🐶",
    "a sign that says “ΩMEGA 東京” on a wall",
    "Ein brauner Hund läuft über den Strand",
    "kahverengi bir köpek sahilde koşuyor",
]
OTHER_SCRIPTS = [
    "коричневая собака бежит по пляжу с красным мячом в зубах",
    "две лодки на спокойном море",
    "ένας καφέ σκύλος τρέχει στην παραλία με μια κόκκινη μπάλα",
    "כלב חום רץ על החוף עם כדור אדום בפה",
    "एक भूरा कुत्ता मुंह में लाल गेंद लेकर समुद्र तट पर दौड़ रहा है",
    "สุนัขสีน้ำตาลวิ่งไปตามชายหาดโดยมีลูกบอลสีแดงอยู่ในปาก",
    "一只棕色的狗嘴里叼着红色的球在海滩上奔跑",
    "茶色の犬が赤いボールをくわえて浜辺を走っている",
    "갈색 개가 빨간 공을 입에 물고 해변을 달린다",
]
